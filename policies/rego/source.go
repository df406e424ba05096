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

// What a policy may measure. Nothing stops OPA's compiler once it runs. It takes
// quadratic time for many rules or keys, and for each level of comprehensions two
// and a half times as long: at 15 of them, 4 s.
const (
	MaxSource   = 64 << 10 // bytes, in all files
	MaxFiles    = 64
	maxDepth    = 500 // nodes of the syntax tree; what people write stays below 50
	maxClosures = 6   // comprehensions, and every
)

// testSuffix ends the names of files that hold only tests.
const testSuffix = "_test.rego"

// File is a file of Rego. Its name is what messages say.
type File struct {
	Name string
	Text string
}

// Error is a source that is no policy. The author is to blame, and the message
// says where, and what to write instead. It may have several lines.
type Error struct {
	Message string
}

// Error implements error.
func (e *Error) Error() string { return e.Message }

// refuse says what is wrong at a place in the source.
func refuse(at *ast.Location, format string, args ...any) *Error {
	return &Error{Message: fmt.Sprintf("%s:%d: ", at.File, at.Row) + fmt.Sprintf(format, args...)}
}

// Digest is what the files are known by: a SHA-256 in hexadecimal. Neither their
// order nor their tests count, since they don't change an answer.
func Digest(files []File) string {
	sum := sha256.New()
	for _, f := range sorted(files) {
		if isTest(f.Name) {
			continue
		}
		// With the lengths, no two sets of files write the same bytes.
		fmt.Fprintf(sum, "%d %d\n", len(f.Name), len(f.Text))
		_, _ = io.WriteString(sum, f.Name+f.Text)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

func isTest(name string) bool { return strings.HasSuffix(name, testSuffix) }

func sorted(files []File) []File {
	return slices.SortedFunc(slices.Values(files), func(a, b File) int { return strings.Compare(a.Name, b.Name) })
}

// parse reads the files, by name. Tests are left out unless they are asked for.
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
			return nil, &Error{Message: fmt.Sprintf("%s: there are two files of this name", f.Name)}
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
		return &Error{Message: fmt.Sprintf("%d files, where at most %d are allowed", len(files), MaxFiles)}
	}
	size := 0
	for _, f := range files {
		size += len(f.Text)
	}
	if size > MaxSource {
		return &Error{Message: fmt.Sprintf("%d bytes of Rego, where at most %d are allowed: a policy holds rules, not data", size, MaxSource)}
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

// checkDepth refuses what is nested so deeply that walking it, by recursion, could
// use up the stack, or that compiling it takes exponential time.
func checkDepth(module *ast.Module) error {
	var at *ast.Location // of the closest node above that has one
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
			err = refuse(at, "what is here is nested deeper than %d", maxDepth)
		case closures > maxClosures:
			err = refuse(at, "comprehensions are nested deeper than %d: give the inner ones names, as rules", maxClosures)
		case templates > maxTemplates:
			err = refuse(at, "template strings are nested deeper than %d: give the inner ones names, as rules", maxTemplates)
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

// explain makes one Error of OPA's, with a line for each, sorted by place.
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

// language is Rego version 1 with all that OPA itself offers. Which built-ins a
// policy may use is checked later, since a refusal can then give advice.
var language = sync.OnceValue(func() *ast.Capabilities {
	all := ast.CapabilitiesForThisVersion(ast.CapabilitiesRegoVersion(ast.RegoV1))
	all.AllowNet = []string{} // no schema is fetched while compiling
	all.Features = slices.DeleteFunc(all.Features, func(f string) bool {
		return f == ast.FeatureRegoV2 || f == ast.FeatureRegoV2Import
	})
	return all
})
