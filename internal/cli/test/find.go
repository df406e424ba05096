package test

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gleaner-dev/gleaner/internal/cli/loader"
	"github.com/gleaner-dev/gleaner/policies/rego"
)

// target is either the Rego files of one directory, or a file with cases.
type target struct {
	rego  []string
	data  []string // data documents for the tests in rego
	cases string
}

func (t target) name() string {
	if t.cases != "" {
		return t.cases
	}
	return filepath.Dir(t.rego[0])
}

func (t target) run(ctx context.Context, o options) Suite {
	if t.cases != "" {
		return runCases(ctx, t.cases, o)
	}
	return runRego(ctx, t, o)
}

// finder collects the files to test.
type finder struct {
	rego  map[string][]string // files by directory
	data  map[string][]string // likewise
	cases []string
}

// findTests returns the targets at the paths, sorted by name, with the Rego of a directory
// before its cases. Files that are named are always included; files that are found must look
// like tests.
func findTests(paths []string) ([]target, error) {
	f := &finder{rego: map[string][]string{}, data: map[string][]string{}}
	for _, path := range paths {
		path = filepath.Clean(path)
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return nil, fmt.Errorf("find tests: %w", err)
		case info.IsDir():
			err = f.walk(path)
		case filepath.Ext(path) == ".rego":
			f.rego[filepath.Dir(path)] = append(f.rego[filepath.Dir(path)], path)
		case isData(path):
			f.data[filepath.Dir(path)] = append(f.data[filepath.Dir(path)], path)
		case isYAML(path) || filepath.Ext(path) == ".json":
			f.cases = append(f.cases, path)
		default:
			return nil, fmt.Errorf("%s is not a test file: name a directory, .rego files, or a YAML file with cases", path)
		}
		if err != nil {
			return nil, fmt.Errorf("find tests: %w", err)
		}
	}
	if len(f.rego)+len(f.cases) == 0 {
		return nil, errNoTests
	}
	return f.targets(), nil
}

func (f *finder) targets() []target {
	var targets []target
	for dir, files := range f.rego {
		slices.Sort(files)
		slices.Sort(f.data[dir])
		targets = append(targets, target{rego: slices.Compact(files), data: slices.Compact(f.data[dir])})
	}
	slices.Sort(f.cases)
	for _, file := range slices.Compact(f.cases) {
		targets = append(targets, target{cases: file})
	}
	slices.SortFunc(targets, func(a, b target) int { return cmp.Compare(a.name(), b.name()) })
	return targets
}

// walk searches a directory recursively, except for hidden ones.
func (f *finder) walk(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && isHidden(entry.Name()):
			return fs.SkipDir
		case entry.IsDir():
			return f.addDir(path)
		case entry.Type().IsRegular() && isYAML(path) && !isData(path):
			found, err := matchesAll(path, looksLikeCases, hasHook)
			if found {
				f.cases = append(f.cases, path)
			}
			return err
		}
		return nil
	})
}

// addDir adds the Rego files of a directory if one of them has tests.
func (f *finder) addDir(path string) error {
	files, err := filepath.Glob(filepath.Join(loader.EscapeGlob(path), "*.rego"))
	if err != nil {
		return err
	}
	for _, file := range files {
		found, err := matchesAll(file, looksLikeTests)
		if err != nil {
			return err
		}
		if found {
			f.rego[path] = append(f.rego[path], files...)
			data, err := dataBelow(path)
			f.data[path] = append(f.data[path], data...)
			return err
		}
	}
	return nil
}

var (
	looksLikeTests = regexp.MustCompile(`(?m)^(todo_)?test_`)
	looksLikeCases = regexp.MustCompile(`(?m)^cases:`)
	hasHook        = regexp.MustCompile(`\bhook:`)
)

// matchesAll reports whether a file matches all patterns.
func matchesAll(file string, what ...*regexp.Regexp) (bool, error) {
	text, err := os.ReadFile(file)
	return !slices.ContainsFunc(what, func(w *regexp.Regexp) bool { return !w.Match(text) }), err
}

func isHidden(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "node_modules"
}

func isYAML(path string) bool { return slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(path)) }

// isData reports whether a file contains data for tests, by the names that opa test --bundle
// reads.
func isData(path string) bool {
	return slices.Contains([]string{"data.json", "data.yaml", "data.yml"}, filepath.Base(path))
}

// dataBelow finds the data files in a directory, recursively.
func dataBelow(root string) (found []string, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && isHidden(entry.Name()):
			return fs.SkipDir
		case entry.Type().IsRegular() && isData(path):
			found = append(found, path)
		}
		return nil
	})
	return found, err
}

// documents reads the data of a directory. Data in a subdirectory is nested under its path.
func (t target) documents() ([]rego.Document, error) {
	var all []rego.Document
	for _, path := range t.data {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read data: %w", err)
		}
		below, err := filepath.Rel(t.name(), filepath.Dir(path))
		if err != nil {
			return nil, fmt.Errorf("read data: %w", err)
		}
		d := rego.Document{Name: path, Text: text}
		if below != "." {
			d.Path = strings.Split(filepath.ToSlash(below), "/")
		}
		all = append(all, d)
	}
	return all, nil
}
