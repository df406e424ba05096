package rego

import (
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"runtime"
	"strings"
	"testing"
)

// TestPattern_IsBoundedBeforeCompiling holds for each built-in that the host
// does and that takes a pattern: what they refuse has cost no memory.
func TestPattern_IsBoundedBeforeCompiling(t *testing.T) {
	for claim, pattern := range map[string]string{
		"repeated in alternatives":                    strings.Repeat("x{1000}|", 8_000),
		"repeated classes":                            strings.Repeat(`\pL{1000}`, 400),
		"repeated within":                             `((((\pL{10}){10}){10})){1}` + strings.Repeat("(a{30}){30}", 300),
		"many classes":                                strings.Repeat(`\pL|`, 10_000),
		"many classes that fit":                       strings.Repeat(`\pL|`, 1_000),
		"ranges that ignore case":                     `(?i)` + strings.Repeat(`[B-\x{10FFFE}]`, 250),
		"ranges that ignore case later, beyond ASCII": `(?s-m:(?mi)` + strings.Repeat(`[B-􏿾]`, 250) + `)`,
		"long": strings.Repeat("x", 60_000),
	} {
		for name, args := range map[string][]string{
			"regex.find_n":  {pattern, "x", "-1"},
			"regex.split":   {pattern, "x"},
			"regex.replace": {"x", pattern, "y"},
		} {
			t.Run(name+" "+claim, func(t *testing.T) {
				texts := make([]string, 0, len(args))
				for _, arg := range args {
					if arg != "-1" {
						arg = fmt.Sprintf("%q", arg)
					}
					texts = append(texts, arg)
				}
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				paid := int64(0)
				_, err := callBuiltin(t.Context(), name, texts, func(units int64) error { paid += units; return nil })
				runtime.ReadMemStats(&after)

				var refused *builtinError
				if !errors.As(err, &refused) || paid > 0 {
					t.Errorf("got %v for %d units, want that it is refused", err, paid)
				}
				if taken := after.TotalAlloc - before.TotalAlloc; taken > 32<<20 {
					t.Errorf("refusing it took %d MiB", taken>>20)
				}
			})
		}
	}
}

// TestPattern_AllowsRealPatterns holds for the largest that are honest.
func TestPattern_AllowsRealPatterns(t *testing.T) {
	for _, pattern := range []string{
		`^[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?$`,
		`^([a-z0-9]{1,63}\.){1,8}[a-z]{2,63}$`,
		`^sha256:[0-9a-f]{64}$`,
		`^\pL[\pL\pN_-]{0,31}$`,
		`(?i)^(` + strings.Repeat("kube-system|", 100) + `default)$`,
	} {
		if steps, err := matchCost(pattern, "x"); err != nil || steps == 0 {
			t.Errorf("%.60s: %d steps, %v", pattern, steps, err)
		}
	}
}

// FuzzPattern holds that no pattern is compiled to more than what was measured.
func FuzzPattern(f *testing.F) {
	for _, pattern := range []string{
		`a|b|c`, `(a|b)*c+d?`, `x{3,7}?`, `((x{2}){3,}){4}`, `[a-z]{1,9}|\pL`, `(?i)kube|(?:)|^$\b`, `(|a)*`, `a**`, `(a{0}){5}`, `x{0,}`, `(?s).{2,3}`,
		`(((a?)?)?)?`, `a{1000}`, `[^\x00-\x{10FFFF}]`, `ab|ac|ad|abc`,
	} {
		f.Add(pattern)
	}
	f.Fuzz(func(t *testing.T, pattern string) {
		if _, err := matchCost(pattern, "x"); err != nil {
			return
		}
		parsed, err := syntax.Parse(pattern, syntax.Perl)
		if err != nil {
			return
		}
		prog, err := syntax.Compile(parsed.Simplify())
		if err != nil {
			t.Fatal(err)
		}
		if size := sizeOf(parsed); len(prog.Inst) > size.states {
			t.Errorf("%q is compiled to %d states, and was measured at %d", pattern, len(prog.Inst), size.states)
		}
		if _, err := regexp.Compile(pattern); err != nil {
			t.Error(err)
		}
	})
}
