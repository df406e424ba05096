package architecture

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// module is the path of the root module. Nested modules are named below it, so
// the folder of a package is the rest of its import path.
const module = "github.com/gleaner-dev/gleaner"

// A layer describes what a package may import. The standard library is always
// allowed, except in pure packages.
type layer struct {
	pure     bool     // no clock, no I/O, no locks, no goroutines, no logs, no randomness
	anything bool     // may import anything
	internal []string // packages of this project, by folder; not those below it
	external []string // prefixes of import paths
}

// impure lists packages that a pure package may not import, including their subpackages.
var impure = []string{"crypto/rand", "log", "math/rand", "net", "os", "sync"}

// addresses is below one of them, and has no connections.
const addresses = "net/url"

// clock lists functions of package time that a pure package may not use.
var clock = []string{"After", "AfterFunc", "NewTicker", "NewTimer", "Now", "Since", "Sleep", "Tick", "Until"}

// TestLayering reads the files itself. A go list in a subprocess would be
// invisible to the test cache, and a broken import would still print "ok".
func TestLayering(t *testing.T) {
	packages, rows := parseTree(t), maps.Clone(layers)
	maps.Copy(rows, policyLayers)
	maps.Copy(rows, cliLayers)
	maps.Copy(rows, nodeLayers)
	maps.Copy(rows, developmentLayers)

	for _, folder := range slices.Sorted(maps.Keys(packages)) {
		row, ok := rows[folder]
		if !ok {
			t.Errorf("%s has no row in layers: add what it may import", folder)
			continue
		}
		for _, file := range packages[folder] {
			for _, v := range violations(row, file.syntax) {
				t.Errorf("%s: %s %s", file.name, folder, v)
			}
		}
	}

	for _, folder := range slices.Sorted(maps.Keys(rows)) {
		if _, ok := packages[folder]; ok {
			continue
		}
		t.Errorf("%s has a row in layers and no Go file: remove the row", folder)
	}
}

func TestLayering_FindsViolations(t *testing.T) {
	pure := layer{pure: true, internal: []string{"hostabi"}, external: []string{"k8s.io/api"}}
	for name, c := range map[string]struct {
		row  layer
		src  string
		want []string
	}{
		"no violation in allowed imports": {pure, `import ("fmt"; "k8s.io/api/core/v1"; "` + module + `/hostabi")`, nil},
		"a prefix that ends inside a word": {pure, `import "k8s.io/apimachinery/pkg/types"`,
			[]string{"may not import k8s.io/apimachinery/pkg/types"}},
		"a package below an allowed one": {pure, `import "` + module + `/hostabi/inner"`,
			[]string{"may not import " + module + "/hostabi/inner"}},
		"a lock in a pure package": {pure, `import "sync/atomic"`,
			[]string{"is pure and may not import sync/atomic"}},
		"no violation: a lock in another package": {layer{}, `import "sync/atomic"`, nil},
		"the clock in a pure package, also renamed": {pure, "import clock \"time\"\nvar start = clock.Now()",
			[]string{"is pure and may not use time.Now"}},
		"the clock used as a value": {pure, "import \"time\"\nvar now = time.Now",
			[]string{"is pure and may not use time.Now"}},
		"no violation: a duration": {pure, "import \"time\"\nvar wait = time.Second", nil},
		"the clock behind a dot import": {pure, `import . "time"`,
			[]string{"is pure and may not dot-import time"}},
		"a goroutine in a pure package": {pure, "func f() { go f() }",
			[]string{"is pure and may not start a goroutine"}},
		"no violation: anything is allowed": {layer{anything: true}, `import "example.com/x"`, nil},
	} {
		t.Run(name, func(t *testing.T) {
			file, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\n"+c.src, parser.SkipObjectResolution)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, violations(c.row, file)); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

type sourceFile struct {
	name   string
	syntax *ast.File
}

// parseTree returns the Go files of each package, by folder, of this module
// and of nested modules, without tests.
func parseTree(t *testing.T) map[string][]sourceFile {
	t.Helper()
	t.Chdir("../..")
	packages := map[string][]sourceFile{}
	fset := token.NewFileSet()
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			if ignored(entry.Name()) {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		src, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(fset, name, src, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parse: %w", err)
		}
		folder := path.Dir(filepath.ToSlash(name))
		packages[folder] = append(packages[folder], sourceFile{name, syntax})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return packages
}

// ignored reports whether the go command ignores a folder of this name.
func ignored(name string) bool {
	return name != "." && (name[0] == '.' || name[0] == '_') || name == "testdata" || name == "vendor"
}

// violations returns what is wrong with a file; each text continues a sentence that
// begins with its package.
func violations(row layer, file *ast.File) []string {
	var found []string
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			panic(fmt.Sprintf("unquote import %s: %v", spec.Path.Value, err))
		}
		if !row.allows(imported) {
			found = append(found, "may not import "+imported)
		}
		if row.pure && imported != addresses && below(impure, imported) {
			found = append(found, "is pure and may not import "+imported)
		}
		if row.pure && imported == "time" {
			found = append(found, clockUses(file, spec)...)
		}
	}
	if row.pure && startsGoroutine(file) {
		found = append(found, "is pure and may not start a goroutine")
	}
	return found
}

func (l layer) allows(imported string) bool {
	if l.anything {
		return true
	}
	if folder, ok := strings.CutPrefix(imported, module+"/"); ok {
		return slices.Contains(l.internal, folder)
	}
	first, _, _ := strings.Cut(imported, "/")
	standard := !strings.Contains(first, ".")
	return standard || below(l.external, imported)
}

// below reports whether the import path is one of the prefixes or below one.
func below(prefixes []string, imported string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool {
		return imported == prefix || strings.HasPrefix(imported, prefix+"/")
	})
}

// clockUses returns the uses of the clock through the file's import of time.
func clockUses(file *ast.File, spec *ast.ImportSpec) []string {
	name := "time"
	if spec.Name != nil {
		name = spec.Name.Name
	}
	if name == "." {
		return []string{"is pure and may not dot-import time"}
	}
	var found []string
	ast.Inspect(file, func(n ast.Node) bool {
		use, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := use.X.(*ast.Ident); ok && x.Name == name && slices.Contains(clock, use.Sel.Name) {
			found = append(found, "is pure and may not use time."+use.Sel.Name)
		}
		return true
	})
	return found
}

func startsGoroutine(file *ast.File) bool {
	found := false
	ast.Inspect(file, func(n ast.Node) bool {
		_, is := n.(*ast.GoStmt)
		found = found || is
		return !found
	})
	return found
}
