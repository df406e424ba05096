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

// UnionTypes makes OPA's type checker take time exponential in the number of levels, ten
// times as much for each: every value has one of three types, each made of the values of
// the level before, and two values are compared.
func UnionTypes(levels int) string {
	var b strings.Builder
	b.WriteString(header + "a0 := 1 if input.a\na0 := \"\" if input.b\n")
	for i := range levels {
		fmt.Fprintf(&b, "a%d := {\"a\": a%d, \"b\": a%d} if input.a\na%d := {\"c\": a%d} if input.b\na%d := [a%d] if input.c\n", i+1, i, i, i+1, i, i+1, i)
	}
	fmt.Fprintf(&b, "collect := 1 if a%d == a%d\n", levels, levels-1)
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
