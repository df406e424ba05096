package rego

import (
	"errors"
	"fmt"
	"math/big"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/open-policy-agent/opa/v1/topdown/builtins"
)

// Built-ins of the host can't be stopped once they run. So each says beforehand
// what its arguments can make it take, at the most: in steps, which are paid for
// as fuel, and in bytes of what it answers. Arguments of a wrong type cost nothing;
// the built-in will find them so.

const (
	mostSteps   = 1 << 27 // less than a second of work
	mostBytes   = 1 << 20 // of an answer
	mostNumbers = 1000    // in a range
)

// texts gives the arguments that are strings, if all of the first n are.
func texts(args []*ast.Term, n int) ([]string, bool) {
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

// pairs: each character of one may be compared with each of the other.
func pairs(args []*ast.Term) (int, error) {
	s, ok := texts(args, 2)
	if !ok {
		return 0, nil
	}
	return len(s[0]) * len(s[1]), nil
}

// elements: each element of one may be compared with each of the other.
func elements(args []*ast.Term) (int, error) {
	return nodes(args[0]) * nodes(args[1]), nil
}

func nodes(t *ast.Term) int {
	n := 0
	ast.WalkTerms(t, func(*ast.Term) bool { n++; return false })
	return n
}

// find is for a pattern and a text, in this order, and split as well. To find all
// matches, the rest of the text may be read again for each character.
func find(args []*ast.Term) (int, error) {
	s, ok := texts(args, 2)
	if !ok {
		return 0, nil
	}
	return matching(s[0], s[1])
}

// replace is for a text, a pattern and what is put in each match's place, where
// each $ may stand for all of the text.
func replace(args []*ast.Term) (int, error) {
	s, ok := texts(args, 3)
	if !ok {
		return 0, nil
	}
	text, value := len(s[0]), len(s[2])
	if grown := text + (text+1)*value + text*text*strings.Count(s[2], "$"); grown > mostBytes {
		return 0, fmt.Errorf("the text could become %d bytes, where at most %d are allowed", grown, mostBytes)
	}
	return matching(s[1], s[0])
}

// patch: each copy can put the document into itself, and so double it.
func patch(args []*ast.Term) (int, error) {
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
		if size *= 2; size > mostBytes {
			return 0, fmt.Errorf("with so many copies the document could pass %d bytes", mostBytes)
		}
	}
	return operations.Len() * size, nil
}

// rangeStep: the answer is as long as the numbers say.
func rangeStep(args []*ast.Term) (int, error) {
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
	if count.Cmp(big.NewInt(mostNumbers)) >= 0 {
		return 0, fmt.Errorf("the range has over %d numbers; numbers.range has no such limit", mostNumbers)
	}
	return mostNumbers * mostNumbers, nil // each number copies those before it
}

// format: a verb can be as wide as it says, and name any argument again.
func format(args []*ast.Term) (int, error) {
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
		if total > mostBytes {
			return 0, fmt.Errorf("the text could pass %d bytes", mostBytes)
		}
	}
	return total, nil
}

// width adds up the numbers with which a verb begins. Package fmt takes none
// above a million, from an argument either.
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

// utc allows no time zone but UTC. The others are read from the machine's files.
func utc(args []*ast.Term) (int, error) {
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

// layout allows none that reads the abbreviation of a time zone: what "EST" means
// depends on where the machine is.
func layout(args []*ast.Term) (int, error) {
	s, ok := texts(args, 1)
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
