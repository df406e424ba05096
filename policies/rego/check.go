package rego

import (
	"fmt"
	"slices"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// packageName is the package of policies. The hooks are its rules.
const packageName = "gleaner"

// hookNames are the rules that are evaluated.
var hookNames = hostabi.Hooks()

// check rejects modules that OPA compiles but that are not valid policies. It
// returns the hooks that the policy implements.
func check(files map[string]*ast.Module, compiler *ast.Compiler) ([]hostabi.Hook, error) {
	var errs []*Error
	for _, name := range sortedKeys(files) {
		errs = append(errs, checkPackage(files[name])...)
		errs = append(errs, checkBuiltins(compiler.Modules[name])...)
		errs = append(errs, checkData(compiler.Modules[name], compiler)...)
	}
	hooks, more := findHooks(files)
	if errs = append(errs, more...); len(errs) > 0 {
		return nil, joinErrors(errs)
	}
	if len(hooks) == 0 {
		return nil, &Error{Message: fmt.Sprintf(
			"package %s has no hook: it needs at least one rule named %s", packageName, orList(hookNames))}
	}
	return hooks, nil
}

func joinErrors(errs []*Error) *Error {
	var lines []string
	for _, err := range errs {
		if !slices.Contains(lines, err.Message) {
			lines = append(lines, err.Message)
		}
	}
	return &Error{Message: strings.Join(lines, "\n")}
}

// checkPackage allows package gleaner, and packages below it for shared code.
func checkPackage(module *ast.Module) []*Error {
	path := module.Package.Path[1:] // without data
	names := make([]string, 0, len(path))
	for _, term := range path {
		if s, ok := term.Value.(ast.String); ok {
			names = append(names, string(s))
		}
	}
	switch at := module.Package.Location; {
	case names[0] != packageName:
		return []*Error{errorAt(at, "package %s: a policy is in package %s, or below it; write tests in a file that ends in %s",
			strings.Join(names, "."), packageName, testSuffix)}
	case len(names) == 1:
		return nil
	case names[1] == "sdk":
		return []*Error{errorAt(at, "package %s: %s.sdk is reserved for Gleaner's library", strings.Join(names, "."), packageName)}
	case slices.Contains(hookNames, hostabi.Hook(names[1])):
		return []*Error{errorAt(at, "package %s: %s is a hook, and must be a rule of package %s", strings.Join(names, "."), names[1], packageName)}
	}
	return nil
}

// findHooks returns the hooks that package gleaner has rules for. Each must be a
// complete value: a verdict that is built from parts could be incomplete.
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
				errs = append(errs, errorAt(rule.Head.Location, "%s is a function: a hook is a rule without arguments, and its request is input", hook))
			case rule.Head.RuleKind() == ast.MultiValue:
				errs = append(errs, errorAt(rule.Head.Location, "%s is a set: a hook's value is one verdict; write %s := {…} if …", hook, hook))
			case len(ref) > 1 || rule.Head.DocKind() != ast.CompleteDoc:
				errs = append(errs, errorAt(rule.Head.Location, "%s is a partial rule: a hook's value is one verdict; write %s := {…} if …", hook, hook))
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

// checkBuiltins rejects built-ins that a policy may not use. It checks the compiled
// module, in which imports and local names no longer hide the callee.
func checkBuiltins(module *ast.Module) []*Error {
	var errs []*Error
	called := func(operator ast.Ref, at *ast.Location) {
		name := operator.String()
		if text, bad := advice(name); bad {
			errs = append(errs, errorAt(at, "%s is not allowed: %s", name, text))
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

// checkData rejects references to documents that do not exist. They would be
// undefined in every request, which is hard to debug.
func checkData(module *ast.Module, compiler *ast.Compiler) []*Error {
	var errs []*Error
	replacements := withTargets(module)
	ast.WalkTerms(module, func(term *ast.Term) bool {
		ref, ok := term.Value.(ast.Ref)
		if !ok || !ref.HasPrefix(ast.DefaultRootRef) {
			return false
		}
		ground := ref.ConstantPrefix()
		if len(compiler.GetRules(ground)) > 0 || slices.ContainsFunc(replacements, ground.HasPrefix) {
			return false
		}
		errs = append(errs, errorAt(term.Location, "%s does not exist: a policy has no data but its input; settings are in input.policy.settings", ground))
		return false
	})
	return errs
}

// withTargets returns the documents that the module replaces by with.
func withTargets(module *ast.Module) []ast.Ref {
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
