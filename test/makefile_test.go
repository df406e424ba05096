package test

import (
	"bytes"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	diff "github.com/google/go-cmp/cmp"
)

// makeList returns the words of a variable of the Makefile, sorted.
func makeList(t *testing.T, variable string) []string {
	t.Helper()
	text, err := os.ReadFile("../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	joined := strings.ReplaceAll(string(text), "\\\n", " ")
	m := regexp.MustCompile(`(?m)^` + variable + `\s*:=(.*)$`).FindStringSubmatch(joined)
	if m == nil {
		t.Fatalf("Makefile has no list %s", variable)
	}
	return slices.Sorted(slices.Values(strings.Fields(m[1])))
}

// TestMake_FuzzesAllTargets compares the list with the code: "go test -fuzz" succeeds for a
// target that does not exist.
func TestMake_FuzzesAllTargets(t *testing.T) {
	_, byName := readTests(t)
	var want []string
	for p := range maps.Values(byName) {
		if strings.HasPrefix(p.name, "Fuzz") {
			want = append(want, path.Dir(p.file)+":"+p.name)
		}
	}
	slices.Sort(want)
	if d := diff.Diff(want, makeList(t, "FUZZ")); d != "" {
		t.Errorf("FUZZ in the Makefile (-code +list):\n%s", d)
	}
}

// TestMake_LanesHaveAllPackages keeps a package from being tested in no lane, or in two.
func TestMake_LanesHaveAllPackages(t *testing.T) {
	modules := slices.Concat(makeList(t, "UNIT_MODULES"), makeList(t, "CLUSTER_MODULES"), makeList(t, "LONG_MODULES"), makeList(t, "RELEASE_MODULES"))
	lanes := slices.Concat(makeList(t, "UNIT"), makeList(t, "CLUSTER"), makeList(t, "LONG"), makeList(t, "RELEASE"))
	for i, pattern := range lanes {
		lanes[i] = strings.TrimPrefix(strings.TrimPrefix(pattern, "$(MODULE)/"), "./")
	}
	used := map[string]bool{}
	for folder := range testedFolders(t) {
		var matches []string
		for _, pattern := range lanes {
			if inPattern(pattern, folder) {
				matches = append(matches, pattern)
			}
		}
		for _, module := range modules {
			if inPattern(module+"/...", folder) {
				matches = append(matches, module)
			}
		}
		if len(matches) != 1 {
			t.Errorf("%s has tests, and is in %d lanes of the Makefile, want 1: %q", folder, len(matches), matches)
		}
		for _, m := range matches {
			used[m] = true
		}
	}
	for _, entry := range append(lanes, modules...) {
		if !used[entry] {
			t.Errorf("%s is in a lane of the Makefile, and has no tests", entry)
		}
	}
}

// inPattern reports whether a pattern of the go command matches a folder.
func inPattern(pattern, folder string) bool {
	parent, all := strings.CutSuffix(pattern, "/...")
	return folder == parent || all && strings.HasPrefix(folder, parent+"/")
}

// testedFolders returns the folders with test files, except those of examples, which are
// modules that ./test/examples tests.
func testedFolders(t *testing.T) map[string]bool {
	t.Helper()
	folders := map[string]bool{}
	err := filepath.WalkDir(root, func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		folder, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		skipped := strings.HasPrefix(entry.Name(), ".") && folder != "." || entry.Name() == "testdata" || folder == "bin" || folder == "examples"
		if entry.IsDir() && skipped {
			return fs.SkipDir
		}
		if strings.HasSuffix(name, "_test.go") {
			folders[path.Dir(filepath.ToSlash(folder))] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return folders
}

// TestMake_ReleaseRunsInFullWhatIsShortened keeps a test that does less with -short from doing it always.
func TestMake_ReleaseRunsInFullWhatIsShortened(t *testing.T) {
	var want []string
	for folder := range testedFolders(t) {
		files, err := filepath.Glob("../" + folder + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if bytes.Contains(text, []byte("\tif testing.Short()")) {
				want = append(want, "./"+folder)
			}
		}
	}
	slices.Sort(want)
	got := slices.Sorted(slices.Values(slices.Concat(makeList(t, "SHORTENED"), makeList(t, "COMPANION"))))
	if d := diff.Diff(slices.Compact(want), got); d != "" {
		t.Errorf("SHORTENED and COMPANION in the Makefile (-code +lists):\n%s", d)
	}
}
