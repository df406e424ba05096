package rego

import (
	"slices"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gleaner-dev/gleaner/policies"
)

// needsOf returns how much of the object a compiled policy reads: more rather than less if that depends
// on values. The rules of the library count if the policy reaches them.
func needsOf(files map[string]*ast.Module, compiler *ast.Compiler) policies.Needs {
	var reached []*ast.Rule
	seen := map[*ast.Rule]struct{}{}
	reach := func(rule *ast.Rule) {
		for ; rule != nil; rule = rule.Else {
			if _, ok := seen[rule]; !ok {
				seen[rule] = struct{}{}
				reached = append(reached, rule)
			}
		}
	}
	for name := range files {
		for _, rule := range compiler.Modules[name].Rules {
			reach(rule)
		}
	}
	needs := policies.NeedsReference
	for len(reached) > 0 {
		rule := reached[len(reached)-1]
		reached = reached[:len(reached)-1]
		needs = policies.MostNeeds(needs, needsOfTerms(rule))
		for node := range compiler.Graph.Dependencies(rule) {
			if called, ok := node.(*ast.Rule); ok {
				reach(called)
			}
		}
	}
	return needs
}

// needsOfTerms returns how much of the object the terms of a rule read, or of a part of it.
func needsOfTerms(part any) policies.Needs {
	needs := policies.NeedsReference
	ast.WalkTerms(part, func(term *ast.Term) bool {
		switch value := term.Value.(type) {
		case ast.Ref:
			needs = policies.MostNeeds(needs, needsOfRef(value))
			for _, operand := range value[1:] {
				needs = policies.MostNeeds(needs, needsOfTerms(operand))
			}
			return true
		case ast.Var:
			if value.Equal(ast.InputRootDocument.Value) {
				needs = policies.NeedsObject
			}
		}
		return false
	})
	return needs
}

// referenceFields are the fields of the object and of its metadata that every request has.
var referenceFields = []string{"name", "namespace", "uid", "resourceVersion"}

// needsOfRef returns how much of the object a reference reads.
func needsOfRef(ref ast.Ref) policies.Needs {
	if !ref.HasPrefix(ast.InputRootRef) {
		return policies.NeedsReference
	}
	path := make([]string, 0, len(ref))
	for _, term := range ref[1:] {
		field, ok := term.Value.(ast.String)
		if !ok {
			break
		}
		path = append(path, string(field))
	}
	switch {
	case len(path) == 0, path[0] == "withheld":
		return policies.NeedsObject
	case path[0] == "namespaceTerminating":
		return policies.NeedsMetadata // is read with it
	case path[0] != "object":
		return policies.NeedsReference
	case len(path) == 1:
		return policies.NeedsObject
	case path[1] == "apiVersion", path[1] == "kind":
		return policies.NeedsReference
	case path[1] != "metadata":
		return policies.NeedsObject
	case len(path) > 2 && slices.Contains(referenceFields, path[2]):
		return policies.NeedsReference
	default:
		return policies.NeedsMetadata
	}
}
