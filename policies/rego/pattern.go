package rego

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode"
)

// Limits of regular expressions. Compiling one repeats what is in braces, so a few
// bytes can expand to hundreds of megabytes: the size is computed from the parsed
// pattern, and only a small one is compiled. The length of the pattern bounds the
// cost of parsing.
const (
	maxPattern = 4 << 10 // bytes
	maxStates  = 4096
	maxRanges  = 1 << 16 // of characters, in all classes; \pL has 600
	maxClasses = 64      // of Unicode, such as \pL
	maxFolds   = 16      // case-insensitive ranges beyond ASCII, each of which takes milliseconds to parse

	stepsPerFold = 1 << 17 // characters that have a case
)

// matchCost returns the maximum number of steps to find all matches.
func matchCost(pattern, text string) (int, error) {
	if len(pattern) > maxPattern {
		return 0, fmt.Errorf("the pattern has %d bytes, at most %d are allowed", len(pattern), maxPattern)
	}
	classes, folds := unicodeClasses(pattern), folds(pattern)
	if classes > maxClasses {
		return 0, fmt.Errorf("the pattern has %d Unicode classes, at most %d are allowed", classes, maxClasses)
	}
	if folds > maxFolds {
		return 0, fmt.Errorf("the pattern has %d case-insensitive ranges beyond ASCII, at most %d are allowed", folds, maxFolds)
	}
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0, nil //nolint:nilerr // the built-in is undefined then
	}
	size := sizeOf(parsed)
	if size.states > maxStates {
		return 0, fmt.Errorf("the pattern has more than %d states", maxStates)
	}
	if size.ranges > maxRanges {
		return 0, fmt.Errorf("the pattern has more than %d character ranges", maxRanges)
	}
	return size.states*(len(text)+1)*(len(text)+2)/2 + size.ranges + folds*stepsPerFold, nil
}

func unicodeClasses(pattern string) int {
	return strings.Count(pattern, `\p`) + strings.Count(pattern, `\P`)
}

// folds returns the maximum number of ranges beyond ASCII that may be
// case-insensitive. Parsing visits each character of such a range.
func folds(pattern string) int {
	beyond := strings.ContainsFunc(pattern, func(c rune) bool { return c > unicode.MaxASCII }) ||
		escapes.MatchString(pattern)
	if !beyond || !ignoresCase.MatchString(pattern) {
		return 0
	}
	return strings.Count(pattern, "-") + unicodeClasses(pattern)
}

var (
	escapes     = regexp.MustCompile(`\\[xpP0-7]`)
	ignoresCase = regexp.MustCompile(`\(\?[a-zA-Z-]*i`)
)

// patternSize is the maximum size of a compiled pattern. It saturates at tooLarge.
type patternSize struct{ states, ranges int }

const tooLarge = 1 << 20

func (s patternSize) multiply(n int) patternSize {
	return patternSize{min(s.states*n, tooLarge), min(s.ranges*n, tooLarge)}
}

func (s patternSize) add(o patternSize) patternSize {
	return patternSize{min(s.states+o.states, tooLarge), min(s.ranges+o.ranges, tooLarge)}
}

// sizeOf returns the size of the whole pattern, with the initial, matching and
// failing states.
func sizeOf(r *syntax.Regexp) patternSize {
	return partSize(r).add(patternSize{states: 3})
}

// partSize recurses no deeper than package syntax allows patterns to nest.
func partSize(r *syntax.Regexp) patternSize {
	size := patternSize{states: 1}
	switch r.Op {
	case syntax.OpLiteral:
		return patternSize{states: max(1, len(r.Rune)), ranges: len(r.Rune)}
	case syntax.OpCharClass:
		size.ranges = len(r.Rune) / 2
		return size
	case syntax.OpCapture:
		size.states = 2
	default:
	}
	for _, sub := range r.Sub {
		// Between two alternatives, or parts, there is at most one state.
		size = size.add(partSize(sub)).add(patternSize{states: 1})
	}
	if r.Op == syntax.OpRepeat {
		// x{2,} is xx+, and x{2,5} is xx(x(x(x)?)?)?: each copy has one state more.
		return size.add(patternSize{states: 1}).multiply(max(r.Min+1, r.Max, 1))
	}
	return size
}
