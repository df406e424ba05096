package rego

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/open-policy-agent/opa/v1/ast"
)

// Limits of a policy's source. OPA's compiler cannot be interrupted. It takes
// quadratic time for many rules or keys, and two and a half times as long for each
// level of comprehensions: 4 s at 15 levels.
const (
	MaxSource   = 64 << 10 // bytes, in all files
	MaxFiles    = 64
	maxDepth    = 500 // nodes of the syntax tree; real policies stay below 50
	maxClosures = 6   // comprehensions, and every
)

// testSuffix is the suffix of files that only contain tests.
const testSuffix = "_test.rego"

// File is a Rego file. Its name is used in messages.
type File struct {
	Name string
	Text string
}

// Error reports an invalid policy. The message says where the problem is, and what
// to write instead. It may have several lines.
type Error struct {
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// errorAt returns an Error for a location in the source.
func errorAt(at *ast.Location, format string, args ...any) *Error {
	return &Error{Message: fmt.Sprintf("%s:%d: ", at.File, at.Row) + fmt.Sprintf(format, args...)}
}

// Digest returns the SHA-256 of the files, in hexadecimal. It does not depend on
// their order or on tests, which do not affect verdicts.
func Digest(files []File) string {
	sum := sha256.New()
	for _, f := range sorted(files) {
		if isTest(f.Name) {
			continue
		}
		// The lengths make the input of the hash unambiguous.
		fmt.Fprintf(sum, "%d %d\n", len(f.Name), len(f.Text))
		_, _ = io.WriteString(sum, f.Name+f.Text)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func isTest(name string) bool { return strings.HasSuffix(name, testSuffix) }

func sorted(files []File) []File {
	return slices.SortedFunc(slices.Values(files), func(a, b File) int { return strings.Compare(a.Name, b.Name) })
}

// parse parses the files, by name. Tests are skipped unless tests is true.
func parse(files []File, tests bool) (map[string]*ast.Module, error) {
	if err := checkSizes(files); err != nil {
		return nil, err
	}
	modules := make(map[string]*ast.Module, len(files))
	for _, f := range sorted(files) {
		if isTest(f.Name) && !tests {
			continue
		}
		if _, ok := modules[f.Name]; ok {
			return nil, &Error{Message: fmt.Sprintf("%s: duplicate file name", f.Name)}
		}
		module, err := parseFile(f)
		if err != nil {
			return nil, err
		}
		modules[f.Name] = module
	}
	return modules, nil
}

func checkSizes(files []File) error {
	if len(files) > MaxFiles {
		return &Error{Message: fmt.Sprintf("%d files, at most %d are allowed", len(files), MaxFiles)}
	}
	size := 0
	for _, f := range files {
		size += len(f.Text)
	}
	if size > MaxSource {
		return &Error{Message: fmt.Sprintf("%d bytes of Rego, at most %d are allowed: a policy contains rules, not data", size, MaxSource)}
	}
	return nil
}

func parseFile(f File) (*ast.Module, error) {
	if err := checkNesting(f); err != nil {
		return nil, err
	}
	module, err := ast.ParseModuleWithOpts(f.Name, f.Text, ast.ParserOptions{
		Capabilities: language(),
		RegoVersion:  ast.RegoV1,
	})
	if err != nil {
		return nil, explain(err)
	}
	if err := checkDepth(module); err != nil {
		return nil, err
	}
	return module, nil
}

// checkDepth rejects modules that are nested so deeply that walking them
// recursively could exhaust the stack, or that compiling them takes exponential
// time.
func checkDepth(module *ast.Module) error {
	var at *ast.Location // of the closest ancestor that has one
	var err error
	depth, closures, templates := 0, 0, 0
	enter := func(x any) bool {
		if node, ok := x.(interface{ Loc() *ast.Location }); ok && node.Loc() != nil {
			at = node.Loc()
		}
		depth++
		if isClosure(x) {
			closures++
		}
		if _, ok := x.(*ast.TemplateString); ok {
			templates++
		}
		switch {
		case err != nil:
		case depth > maxDepth:
			err = errorAt(at, "nested deeper than %d", maxDepth)
		case closures > maxClosures:
			err = errorAt(at, "comprehensions are nested deeper than %d: move the inner ones to rules", maxClosures)
		case templates > maxTemplates:
			err = errorAt(at, "template strings are nested deeper than %d: move the inner ones to rules", maxTemplates)
		}
		return err != nil
	}
	leave := func(x any) {
		depth--
		if isClosure(x) {
			closures--
		}
		if _, ok := x.(*ast.TemplateString); ok {
			templates--
		}
	}
	ast.NewBeforeAfterVisitor(enter, leave).Walk(module)
	return err
}

func isClosure(x any) bool {
	switch x.(type) {
	case *ast.ArrayComprehension, *ast.SetComprehension, *ast.ObjectComprehension, *ast.Every:
		return true
	}
	return false
}

// explain converts OPA's errors to an Error with a line for each, sorted by
// location.
func explain(err error) error {
	var several ast.Errors
	var one *ast.Error
	switch {
	case errors.As(err, &several):
	case errors.As(err, &one):
		several = ast.Errors{one}
	default:
		return &Error{Message: err.Error()}
	}
	several.Sort()
	lines := make([]string, 0, len(several))
	for _, e := range several {
		line := e.Message
		if e.Location != nil {
			line = fmt.Sprintf("%s:%d: %s", e.Location.File, e.Location.Row, e.Message)
		}
		lines = append(lines, line)
	}
	return &Error{Message: strings.Join(slices.Compact(lines), "\n")}
}

// language is Rego version 1 with all features of OPA. Which built-ins a policy may
// use is checked later, so that the error can give advice.
var language = sync.OnceValue(func() *ast.Capabilities {
	all := ast.CapabilitiesForThisVersion(ast.CapabilitiesRegoVersion(ast.RegoV1))
	all.AllowNet = []string{} // no schema is fetched while compiling
	all.Features = slices.DeleteFunc(all.Features, func(f string) bool {
		return f == ast.FeatureRegoV2 || f == ast.FeatureRegoV2Import
	})
	return all
})
