package rego

import (
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown/builtins"
)

// Built-ins of the host cannot be interrupted. So each has a cost function that
// bounds its cost before it is called: in steps, which are charged as fuel, and in
// bytes of its result. Arguments of a wrong type cost nothing; the built-in itself
// rejects them.

const (
	maxSteps       = 1 << 27 // less than a second of work
	maxResultBytes = 1 << 20 // of a result
	maxNumbers     = 1000    // in a range
)

// stringArgs returns the first n arguments if all of them are strings.
func stringArgs(args []*ast.Term, n int) ([]string, bool) {
	all := make([]string, 0, n)
	for _, arg := range args[:n] {
		s, ok := arg.Value.(ast.String)
		if !ok {
			return nil, false
		}
		all = append(all, string(s))
	}
	return all, true
}

// costPairs: each character of one may be compared with each character of the other.
func costPairs(args []*ast.Term) (int, error) {
	s, ok := stringArgs(args, 2)
	if !ok {
		return 0, nil
	}
	return len(s[0]) * len(s[1]), nil
}

// costElements: each element of one may be compared with each of the other.
func costElements(args []*ast.Term) (int, error) {
	return nodes(args[0]) * nodes(args[1]), nil
}

func nodes(t *ast.Term) int {
	n := 0
	ast.WalkTerms(t, func(*ast.Term) bool { n++; return false })
	return n
}

// costFind is for a pattern and a text, in this order. To find all matches, the rest of
// the text may be read again for each character.
func costFind(args []*ast.Term) (int, error) {
	s, ok := stringArgs(args, 2)
	if !ok {
		return 0, nil
	}
	return matchCost(s[0], s[1])
}

// costReplace is for a text, a pattern and a replacement, in which each $ may expand to
// the whole text.
func costReplace(args []*ast.Term) (int, error) {
	s, ok := stringArgs(args, 3)
	if !ok {
		return 0, nil
	}
	text, value := len(s[0]), len(s[2])
	if grown := text + (text+1)*value + text*text*strings.Count(s[2], "$"); grown > maxResultBytes {
		return 0, fmt.Errorf("the result could have %d bytes, at most %d are allowed", grown, maxResultBytes)
	}
	return matchCost(s[1], s[0])
}

// costPatch: each copy can double the document.
func costPatch(args []*ast.Term) (int, error) {
	operations, ok := args[1].Value.(*ast.Array)
	if !ok {
		return 0, nil
	}
	size := len(args[0].String()) + len(args[1].String())
	for i := range operations.Len() {
		operation, ok := operations.Elem(i).Value.(ast.Object)
		if !ok {
			continue
		}
		if op := operation.Get(ast.StringTerm("op")); op == nil || !op.Equal(ast.StringTerm("copy")) {
			continue
		}
		if size *= 2; size > maxResultBytes {
			return 0, fmt.Errorf("with this many copies the result could exceed %d bytes", maxResultBytes)
		}
	}
	return operations.Len() * size, nil
}

// costRangeStep: the length of the result depends on the numbers.
func costRangeStep(args []*ast.Term) (int, error) {
	var n [3]*big.Int
	for i, arg := range args {
		number, err := builtins.BigIntOperand(arg.Value, i+1)
		if err != nil {
			return 0, nil //nolint:nilerr // the built-in is undefined then
		}
		n[i] = number
	}
	if n[2].Sign() <= 0 {
		return 0, nil
	}
	count := new(big.Int).Sub(n[1], n[0])
	count.Quo(count.Abs(count), n[2])
	if count.Cmp(big.NewInt(maxNumbers)) >= 0 {
		return 0, fmt.Errorf("the range has more than %d numbers; use numbers.range, which has no such limit", maxNumbers)
	}
	return maxNumbers * maxNumbers, nil // each number copies those before it
}

// costFormat: a verb can have any width, and refer to any argument again.
func costFormat(args []*ast.Term) (int, error) {
	template, ok := args[0].Value.(ast.String)
	if !ok {
		return 0, nil
	}
	values, ok := args[1].Value.(*ast.Array)
	if !ok {
		return 0, nil
	}
	total, longest := len(template), 0
	for i := range values.Len() {
		size := len(values.Elem(i).String())
		longest = max(longest, size)
		total += size + 64 // with "%!(EXTRA …)", and its type
	}
	widest := 400 // digits of the largest float
	for _, verb := range strings.Split(string(template), "%")[1:] {
		total += width(verb) + 6*longest + widest // 6: a character may be escaped
		if total > maxResultBytes {
			return 0, fmt.Errorf("the result could exceed %d bytes", maxResultBytes)
		}
	}
	return total, nil
}

// width adds up the numbers at the beginning of a verb. Package fmt accepts none
// above a million, also from arguments.
func width(verb string) int {
	const tooLarge = 1_000_000
	sum, number := 0, 0
	for _, c := range verb {
		switch {
		case c >= '0' && c <= '9':
			number = min(number*10+int(c-'0'), tooLarge)
			continue
		case c == '*':
			sum += tooLarge
		case !strings.ContainsRune("+-# .[]", c):
			return sum + number
		}
		sum, number = sum+number, 0
	}
	return sum + number
}

var errZone = errors.New("time zones differ between machines: use UTC, and add the offset")

// requireUTC allows no time zone but UTC. Others are read from files of the machine.
func requireUTC(args []*ast.Term) (int, error) {
	for _, arg := range args {
		a, ok := arg.Value.(*ast.Array)
		if !ok || a.Len() < 2 {
			continue
		}
		if zone, ok := a.Elem(1).Value.(ast.String); ok && zone != "" && zone != "UTC" {
			return 0, errZone
		}
	}
	return 0, nil
}

// requireZonelessLayout rejects layouts with a time zone abbreviation: the meaning of "EST"
// depends on the location of the machine.
func requireZonelessLayout(args []*ast.Term) (int, error) {
	s, ok := stringArgs(args, 1)
	if !ok {
		return 0, nil
	}
	switch s[0] {
	case "UnixDate", "RFC822", "RFC850", "RFC1123":
		return 0, errZone
	}
	if strings.Contains(s[0], "MST") {
		return 0, errZone
	}
	return 0, nil
}
