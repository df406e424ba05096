package reference

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

type conditionReason struct{ condition, reason, message string }

const conditionsPreamble = `# Conditions

The conditions in the status of Gleaner's resources, shown by ` + "`kubectl describe`" + ` and ` + "`kubectl get clustergcpolicies NAME -o yaml`" + `. The message of a
condition that reports a problem says how to fix it. … stands for variable text. This page is generated from the code by ` + "`make generate`" + `.
`

func describeConditions(t *testing.T, code source) string {
	list := code.conditions()
	if len(list) == 0 {
		t.Error("found no conditions")
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

// aboutCondition turns "ConditionX (policies) reports whether …" into a sentence.
func aboutCondition(comment string) string {
	_, rest, ok := strings.Cut(comment, "(")
	if !ok {
		return sentence(comment)
	}
	return sentence(strings.Replace(strings.Join(strings.Fields(rest), " "), ") reports whether", ": reports whether", 1))
}

// conditions finds the calls and literals that have a condition, a reason and a message.
func (s *source) conditions() []conditionReason {
	var list []conditionReason
	s.visitNodes(func(f file, n ast.Node) {
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
	args = values(args)
	if len(args) < 3 || !strings.HasPrefix(selector(args[0]), "v1alpha1.Condition") {
		return nil
	}
	condition := s.consts[selector(args[0])].value
	for i, arg := range args[1 : len(args)-1] {
		_, isText := arg.(*ast.BasicLit)
		_, isName := arg.(*ast.Ident) // a constant of the same package
		_, isSelector := arg.(*ast.SelectorExpr)
		if !isText && !isName && !isSelector {
			continue
		}
		if reason, ok := s.text(f, arg); ok {
			return []conditionReason{{condition, reason, s.leadingText(f, args[i+2])}}
		}
	}
	return nil
}

// values returns the values of a composite literal, be they keyed or not.
func values(elements []ast.Expr) []ast.Expr {
	list := make([]ast.Expr, 0, len(elements))
	for _, e := range elements {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			e = kv.Value
		}
		list = append(list, e)
	}
	return list
}
