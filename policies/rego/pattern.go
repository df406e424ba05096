package rego

import (
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"
	"unicode"
)

// What a regular expression may measure. Compiling one repeats what is in braces,
// so a few bytes can stand for hundreds of megabytes: it is measured as it is
// written, and compiled only if it is small. Package syntax bounds what parsing
// takes by the length of the pattern.
const (
	maxPattern = 4 << 10 // bytes
	maxStates  = 4096
	maxRanges  = 1 << 16 // of characters, in all classes; \pL has 600
	maxClasses = 64      // of Unicode, such as \pL
	maxFolds   = 16      // ranges beyond ASCII without regard to case, each of which takes milliseconds to parse

	stepsPerFold = 1 << 17 // characters that have a case
)

// matching is how many steps finding all matches may take.
func matching(pattern, text string) (int, error) {
	if len(pattern) > maxPattern {
		return 0, fmt.Errorf("the pattern has %d bytes, where at most %d are allowed", len(pattern), maxPattern)
	}
	classes, folds := unicodeClasses(pattern), folds(pattern)
	if classes > maxClasses {
		return 0, fmt.Errorf("the pattern has %d Unicode classes, where at most %d are allowed", classes, maxClasses)
	}
	if folds > maxFolds {
		return 0, fmt.Errorf("the pattern has %d ranges beyond ASCII without regard to case, where at most %d are allowed", folds, maxFolds)
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
		return 0, fmt.Errorf("the pattern has more than %d ranges of characters", maxRanges)
	}
	return size.states*(len(text)+1)*(len(text)+2)/2 + size.ranges + folds*stepsPerFold, nil
}

func unicodeClasses(pattern string) int {
	return strings.Count(pattern, `\p`) + strings.Count(pattern, `\P`)
}

// folds is how many ranges there may be that reach beyond ASCII, if case may not
// matter somewhere. Parsing goes through such a range character by character.
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

// patternSize is what a pattern is compiled to, at the most. Once it is too large,
// how large does not matter.
type patternSize struct{ states, ranges int }

const tooLarge = 1 << 20

func (s patternSize) times(n int) patternSize {
	return patternSize{min(s.states*n, tooLarge), min(s.ranges*n, tooLarge)}
}

func (s patternSize) plus(o patternSize) patternSize {
	return patternSize{min(s.states+o.states, tooLarge), min(s.ranges+o.ranges, tooLarge)}
}

// sizeOf measures the whole pattern, with the state in which it begins to match
// and those that fail and match.
func sizeOf(r *syntax.Regexp) patternSize {
	return partSize(r).plus(patternSize{states: 3})
}

// partSize recurses no deeper than package syntax lets patterns nest.
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
		// Between two alternatives, or parts, there is one state at the most.
		size = size.plus(partSize(sub)).plus(patternSize{states: 1})
	}
	if r.Op == syntax.OpRepeat {
		// x{2,} is xx+, and x{2,5} is xx(x(x(x)?)?)?: each copy has one state more.
		return size.plus(patternSize{states: 1}).times(max(r.Min+1, r.Max, 1))
	}
	return size
}
