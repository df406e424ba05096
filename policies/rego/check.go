package rego

import (
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// root is the package of policies. The hooks are rules of it.
const root = "gleaner"

// hookNames are the rules that are asked.
var hookNames = hostabi.Hooks()

// check refuses what OPA would compile and a policy must not be. It gives the
// hooks that the policy answers.
func check(files map[string]*ast.Module, compiler *ast.Compiler) ([]hostabi.Hook, error) {
	var errs []*Error
	for _, name := range sortedKeys(files) {
		errs = append(errs, checkPackage(files[name])...)
		errs = append(errs, checkBuiltins(compiler.Modules[name])...)
		errs = append(errs, checkData(compiler.Modules[name], compiler)...)
	}
	hooks, more := findHooks(files)
	if errs = append(errs, more...); len(errs) > 0 {
		return nil, together(errs)
	}
	if len(hooks) == 0 {
		return nil, &Error{Message: fmt.Sprintf(
			"package %s has no hook: it needs at least one rule named %s", root, orList(hookNames))}
	}
	return hooks, nil
}

func together(errs []*Error) *Error {
	var lines []string
	for _, err := range errs {
		if !slices.Contains(lines, err.Message) {
			lines = append(lines, err.Message)
		}
	}
	return &Error{Message: strings.Join(lines, "\n")}
}

// checkPackage allows package gleaner, and packages below it for what the hooks
// share.
func checkPackage(module *ast.Module) []*Error {
	path := module.Package.Path[1:] // without data
	names := make([]string, 0, len(path))
	for _, term := range path {
		if s, ok := term.Value.(ast.String); ok {
			names = append(names, string(s))
		}
	}
	switch at := module.Package.Location; {
	case names[0] != root:
		return []*Error{refuse(at, "package %s: a policy is package %s, or below it; tests go into a file that ends in %s",
			strings.Join(names, "."), root, testSuffix)}
	case len(names) == 1:
		return nil
	case names[1] == "sdk":
		return []*Error{refuse(at, "package %s: %s.sdk is the library that comes with the collector", strings.Join(names, "."), root)}
	case slices.Contains(hookNames, hostabi.Hook(names[1])):
		return []*Error{refuse(at, "package %s: %s is a hook, and must be a rule of package %s", strings.Join(names, "."), names[1], root)}
	}
	return nil
}

// findHooks gives the hooks that package gleaner has rules for. Each must be a
// value, and a whole one: a verdict that is put together from parts could lack one.
func findHooks(files map[string]*ast.Module) ([]hostabi.Hook, []*Error) {
	var errs []*Error
	found := map[hostabi.Hook]bool{}
	for _, name := range sortedKeys(files) {
		if len(files[name].Package.Path) != 2 {
			continue
		}
		for _, rule := range files[name].Rules {
			ref := rule.Head.Ref()
			hook := hostabi.Hook(ref[0].Value.String())
			if !slices.Contains(hookNames, hook) {
				continue
			}
			found[hook] = true
			switch {
			case len(rule.Head.Args) > 0:
				errs = append(errs, refuse(rule.Head.Location, "%s is a function: a hook is a rule without arguments, and its request is input", hook))
			case rule.Head.RuleKind() == ast.MultiValue:
				errs = append(errs, refuse(rule.Head.Location, "%s is a set: a hook's value is one verdict; write %s := {…} if …", hook, hook))
			case len(ref) > 1 || rule.Head.DocKind() != ast.CompleteDoc:
				errs = append(errs, refuse(rule.Head.Location, "%s is given in parts: a hook's value is one verdict; write %s := {…} if …", hook, hook))
			}
		}
	}
	var hooks []hostabi.Hook
	for _, hook := range hookNames {
		if found[hook] {
			hooks = append(hooks, hook)
		}
	}
	return hooks, errs
}

// checkBuiltins refuses the built-ins that a policy may not use. The compiled
// module is read, in which imports and local names no longer hide what is called.
func checkBuiltins(module *ast.Module) []*Error {
	var errs []*Error
	called := func(operator ast.Ref, at *ast.Location) {
		name := operator.String()
		if text, bad := advice(name); bad {
			errs = append(errs, refuse(at, "%s may not be used: %s", name, text))
		}
	}
	ast.WalkExprs(module, func(expr *ast.Expr) bool {
		if expr.IsCall() {
			called(expr.Operator(), expr.Location)
		}
		return false
	})
	ast.WalkTerms(module, func(term *ast.Term) bool {
		if call, ok := term.Value.(ast.Call); ok {
			called(call[0].Value.(ast.Ref), term.Location)
		}
		return false
	})
	return errs
}

// checkData refuses what names a document that isn't there. It would be undefined
// in every request, and the author would look for the reason elsewhere.
func checkData(module *ast.Module, compiler *ast.Compiler) []*Error {
	var errs []*Error
	given := replaced(module)
	ast.WalkTerms(module, func(term *ast.Term) bool {
		ref, ok := term.Value.(ast.Ref)
		if !ok || !ref.HasPrefix(ast.DefaultRootRef) {
			return false
		}
		ground := ref.ConstantPrefix()
		if len(compiler.GetRules(ground)) > 0 || slices.ContainsFunc(given, ground.HasPrefix) {
			return false
		}
		errs = append(errs, refuse(term.Location, "%s is not there: a policy has no documents but its input; settings are in input.policy.settings", ground))
		return false
	})
	return errs
}

// replaced are the documents that the module gives a value of its own, by with.
func replaced(module *ast.Module) []ast.Ref {
	var refs []ast.Ref
	ast.WalkWiths(module, func(with *ast.With) bool {
		if ref, ok := with.Target.Value.(ast.Ref); ok {
			refs = append(refs, ref)
		}
		return false
	})
	return refs
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func orList(hooks []hostabi.Hook) string {
	names := make([]string, 0, len(hooks))
	for _, h := range hooks {
		names = append(names, string(h))
	}
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}
