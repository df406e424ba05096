package payload

import (
	"fmt"
	"strings"
)

const header = "package gleaner\n\n"

// NestedTemplates makes OPA's parser take time exponential in the number of levels.
func NestedTemplates(levels int) string {
	return header + "collect := " + strings.Repeat(`$"{`, levels) + "1" + strings.Repeat(`}"`, levels) + "\n"
}

// UnionTypes makes OPA's type checker take time exponential in the number of levels:
// it compares two types, each a pair of pairs of pairs.
func UnionTypes(levels int) string {
	var b strings.Builder
	b.WriteString(header + "a0 := 1\nb0 := 1\n")
	for i := range levels {
		fmt.Fprintf(&b, "a%d := [a%d, a%d]\nb%d := [b%d, b%d]\n", i+1, i, i, i+1, i, i)
	}
	fmt.Fprintf(&b, "collect := [a%d, b%d][input.attempt]\n", levels, levels)
	return b.String()
}

// NestedParentheses makes OPA's compiler use memory quadratic in the number of
// levels: more than a GiB for 15,000 of them.
func NestedParentheses(levels int) string {
	return header + "collect := " + strings.Repeat("1-(", levels) + "1" + strings.Repeat(")", levels) + "\n"
}

// LargePatterns compiles regular expressions of three million instructions each.
func LargePatterns() string {
	return header + `text := concat("", [x | some _ in numbers.range(1, 100); x := "abcdefghijklmnopqrstuvwxyzabcd"])

collect := {"decision": "Abstain"} if {
	count([1 | some i in numbers.range(1, 20); regex.find_n(sprintf("(%s%d){990}", [text, i]), "x", 1)]) >= 0
}
`
}

// Abstaining is a module without faults that always abstains.
func Abstaining() string { return header + `collect := {"decision": "Abstain"}` + "\n" }
