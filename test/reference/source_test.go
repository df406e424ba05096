package reference

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// source is Go code, without tests.
type source struct {
	files  []file
	consts map[string]constant // by "package.Name"
}

type file struct {
	name   string // from the root
	pkg    string
	syntax *ast.File
}

// constant is a string constant with its comment.
type constant struct {
	pkg, value, comment string
}

// parseTree parses folders recursively.
func parseTree(t *testing.T, folders ...string) source {
	t.Helper()
	code := source{consts: map[string]constant{}}
	for _, folder := range folders {
		err := filepath.WalkDir(filepath.Join(root, folder), func(name string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() && (entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".")) {
				return fs.SkipDir
			}
			if entry.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
				return nil
			}
			code.add(t, name)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return code
}

func (s *source) add(t *testing.T, name string) {
	t.Helper()
	syntax, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	short, err := filepath.Rel(root, name)
	if err != nil {
		t.Fatal(err)
	}
	f := file{name: filepath.ToSlash(short), pkg: syntax.Name.Name, syntax: syntax}
	s.files = append(s.files, f)
	for _, d := range syntax.Decls {
		decl, ok := d.(*ast.GenDecl)
		if !ok || decl.Tok != token.CONST {
			continue
		}
		for _, spec := range decl.Specs {
			s.addConst(f, decl, spec.(*ast.ValueSpec))
		}
	}
}

func (s *source) addConst(f file, decl *ast.GenDecl, spec *ast.ValueSpec) {
	comment := spec.Doc.Text() + spec.Comment.Text()
	if comment == "" && len(decl.Specs) == 1 {
		comment = decl.Doc.Text()
	}
	for i, name := range spec.Names {
		if i < len(spec.Values) {
			if value, ok := s.text(f, spec.Values[i]); ok {
				s.consts[f.pkg+"."+name.Name] = constant{f.pkg, value, strings.TrimSpace(comment)}
			}
		}
	}
}

// text evaluates a constant string expression: literals, concatenations,
// conversions and names of parsed constants.
func (s *source) text(f file, e ast.Expr) (string, bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		value, err := strconv.Unquote(e.Value)
		return value, err == nil && e.Kind == token.STRING
	case *ast.BinaryExpr:
		x, okX := s.text(f, e.X)
		y, okY := s.text(f, e.Y)
		return x + y, okX && okY && e.Op == token.ADD
	case *ast.ParenExpr:
		return s.text(f, e.X)
	case *ast.CallExpr:
		if name := calleeName(e); len(e.Args) == 1 && (name == "string" || s.isType(name)) {
			return s.text(f, e.Args[0])
		}
	case *ast.Ident, *ast.SelectorExpr:
		c, ok := s.constant(f, e)
		return c.value, ok
	}
	return "", false
}

// isType reports whether a call is a conversion to a type of constants.
func (s *source) isType(name string) bool { return name == "Reason" }

func (s *source) constant(f file, e ast.Expr) (constant, bool) {
	name := selector(e)
	if id, ok := e.(*ast.Ident); ok {
		name = f.pkg + "." + id.Name
	}
	c, ok := s.consts[name]
	return c, ok
}

// selector returns "x.Name" for a name of another package, or a field.
func selector(e ast.Expr) string {
	s, ok := e.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if x, ok := s.X.(*ast.Ident); ok {
		return x.Name + "." + s.Sel.Name
	}
	return ""
}

// calleeName returns the name of the called function or method, without its qualifier.
func calleeName(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	default:
		return ""
	}
}

// visitNodes visits all nodes of all files, in the order of the files' names.
func (s *source) visitNodes(visit func(f file, n ast.Node)) {
	files := slices.SortedFunc(slices.Values(s.files), func(a, b file) int { return strings.Compare(a.name, b.name) })
	for _, f := range files {
		ast.Inspect(f.syntax, func(n ast.Node) bool {
			if n != nil {
				visit(f, n)
			}
			return true
		})
	}
}

// leadingText returns the text at the beginning of an expression: the first
// part of a concatenation, or the format.
func (s *source) leadingText(f file, e ast.Expr) string {
	if text, ok := s.text(f, e); ok {
		return text
	}
	switch e := e.(type) {
	case *ast.BinaryExpr:
		left := s.leadingText(f, e.X)
		if right, ok := s.text(f, e.Y); ok {
			return left + right
		}
		return left + "…"
	case *ast.CallExpr:
		if calleeName(e) == "Sprintf" && len(e.Args) != 0 {
			return verbs.Replace(s.leadingText(f, e.Args[0]))
		}
	}
	return "…"
}

var verbs = strings.NewReplacer("%s", "…", "%d", "…", "%q", "…", "%v", "…")
