package main

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

	"github.com/gleaner-dev/gleaner/policies/rego"
)

// testTarget is something with tests in it: either files of Rego, all of one
// folder, or a file of cases.
type testTarget struct {
	rego  []string
	data  []string // documents for the tests of rego
	cases string
}

func (t testTarget) name() string {
	if t.cases != "" {
		return t.cases
	}
	return filepath.Dir(t.rego[0])
}

func (t testTarget) run(ctx context.Context, o testOptions) testSuite {
	if t.cases != "" {
		return runCases(ctx, t.cases, o)
	}
	return runRego(ctx, t, o)
}

// testFinder collects what is to be tested.
type testFinder struct {
	rego  map[string][]string // files by folder
	data  map[string][]string // likewise
	cases []string
}

// findTests returns what is to be tested at the paths, in the order of names,
// Rego of a folder before its cases. A file that is named counts, whatever is in
// it; one that is found has to look like tests.
func findTests(paths []string) ([]testTarget, error) {
	f := &testFinder{rego: map[string][]string{}, data: map[string][]string{}}
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
			return nil, fmt.Errorf("%s holds no tests: name a folder, files that end in .rego, or a file of cases in YAML", path)
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

func (f *testFinder) targets() []testTarget {
	var targets []testTarget
	for folder, files := range f.rego {
		slices.Sort(files)
		slices.Sort(f.data[folder])
		targets = append(targets, testTarget{rego: slices.Compact(files), data: slices.Compact(f.data[folder])})
	}
	slices.Sort(f.cases)
	for _, file := range slices.Compact(f.cases) {
		targets = append(targets, testTarget{cases: file})
	}
	slices.SortFunc(targets, func(a, b testTarget) int { return cmp.Compare(a.name(), b.name()) })
	return targets
}

// walk looks through a folder and what is below it, but for what is hidden.
func (f *testFinder) walk(root string) error {
	return filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && hidden(entry.Name()):
			return fs.SkipDir
		case entry.IsDir():
			return f.folder(path)
		case entry.Type().IsRegular() && isYAML(path) && !isData(path):
			found, err := holds(path, looksLikeCases, asksHooks)
			if found {
				f.cases = append(f.cases, path)
			}
			return err
		}
		return nil
	})
}

// folder takes the files of Rego in a folder if one of them has tests: without,
// there is nothing to compile them for.
func (f *testFinder) folder(path string) error {
	files, err := filepath.Glob(filepath.Join(quoted(path), "*.rego"))
	if err != nil {
		return err
	}
	for _, file := range files {
		found, err := holds(file, looksLikeTests)
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
	asksHooks      = regexp.MustCompile(`\bhook:`)
)

// holds reports whether a file has all of these in it.
func holds(file string, what ...*regexp.Regexp) (bool, error) {
	text, err := os.ReadFile(file)
	return !slices.ContainsFunc(what, func(w *regexp.Regexp) bool { return !w.Match(text) }), err
}

// quoted is a path as a pattern that matches it alone.
func quoted(path string) string {
	return regexp.MustCompile(`[*?[\\]`).ReplaceAllString(path, `\$0`)
}

func hidden(name string) bool {
	return strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") || name == "node_modules"
}

func isYAML(path string) bool { return slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(path)) }

// isData reports whether a file has data for tests, by the names that opa test
// --bundle takes.
func isData(path string) bool {
	return slices.Contains([]string{"data.json", "data.yaml", "data.yml"}, filepath.Base(path))
}

// dataBelow finds the data in a folder and in those below it.
func dataBelow(root string) (found []string, err error) {
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && hidden(entry.Name()):
			return fs.SkipDir
		case entry.Type().IsRegular() && isData(path):
			found = append(found, path)
		}
		return nil
	})
	return found, err
}

// documents reads the data of a folder. Data of a folder below it is below data
// by that folder's name.
func (t testTarget) documents() ([]rego.Document, error) {
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
