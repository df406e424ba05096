package reference

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

type conditionReason struct{ condition, reason, message string }

const conditionsPreamble = `# Conditions

What the status of Gleaner's resources says: ` + "`kubectl describe`" + `, or ` + "`kubectl get clustergcpolicies NAME -o yaml`" + `. The message of a condition that is
not as it should be says what to write instead. … stands for what differs from case to case. This page is written from the code, by ` + "`make generate`" + `.
`

func describeConditions(t *testing.T, code source) string {
	list := code.conditions()
	if len(list) == 0 {
		t.Error("no conditions are found")
	}
	var b strings.Builder
	b.WriteString(conditionsPreamble)
	last := ""
	for _, c := range list {
		if c.condition != last {
			last = c.condition
			about := code.consts["v1alpha1.Condition"+c.condition]
			b.WriteString("\n## " + c.condition + "\n\n" + plain(aboutCondition(about.comment)) + "\n\n| reason | message |\n|---|---|\n")
		}
		b.WriteString(row("`"+c.reason+"`", plain(c.message)))
	}
	return b.String()
}

// aboutCondition turns "ConditionX (policies) says that …" into a sentence.
func aboutCondition(comment string) string {
	_, rest, ok := strings.Cut(comment, "(")
	if !ok {
		return sentence(comment)
	}
	return sentence(strings.Replace(strings.Join(strings.Fields(rest), " "), ") says that", ": says that", 1))
}

// conditions finds whatever is made of a condition, …, a reason and a message: calls
// that set one, and problems.
func (s *source) conditions() []conditionReason {
	var list []conditionReason
	s.each(func(f file, n ast.Node) {
		switch n := n.(type) {
		case *ast.CallExpr:
			list = append(list, s.conditionOf(f, n.Args)...)
		case *ast.CompositeLit:
			list = append(list, s.conditionOf(f, n.Elts)...)
		}
	})
	slices.SortStableFunc(list, func(a, b conditionReason) int {
		if c := strings.Compare(a.condition, b.condition); c != 0 {
			return c
		}
		return strings.Compare(a.reason+a.message, b.reason+b.message)
	})
	return slices.Compact(list)
}

func (s *source) conditionOf(f file, args []ast.Expr) []conditionReason {
	if len(args) < 3 || !strings.HasPrefix(selector(args[0]), "v1alpha1.Condition") {
		return nil
	}
	condition := s.consts[selector(args[0])].value
	for i, arg := range args[1 : len(args)-1] {
		_, isText := arg.(*ast.BasicLit)
		_, isName := arg.(*ast.Ident) // of a constant of the same package, if it is one
		if !isText && !isName {
			continue
		}
		if reason, ok := s.text(f, arg); ok {
			return []conditionReason{{condition, reason, s.leading(f, args[i+2])}}
		}
	}
	return nil
}
