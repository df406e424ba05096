package rego

import (
	"io/fs"
	"testing"

	sdk "github.com/gleaner-dev/gleaner/sdk/rego"
)

// The tests of the library are those that stock opa test runs in its folder.
func TestLibrary_PassesItsTestsWithFullCoverage(t *testing.T) {
	names, err := fs.Glob(sdk.Files, "*.rego")
	if err != nil {
		t.Fatal(err)
	}
	var files []File
	for _, name := range names {
		text, err := fs.ReadFile(sdk.Files, name)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, File{Name: name, Text: string(text)})
	}
	modules, err := parse(files, true)
	if err != nil {
		t.Fatal(err)
	}
	report, err := TestOptions{}.run(t.Context(), modules, modules, map[string]any{})
	if err != nil {
		t.Fatal(err)
	}
	if !report.Passed() {
		t.Error("the library fails its tests")
	}
	for _, r := range report.Results {
		if r.Failed || r.Error != "" {
			t.Errorf("%s:%d: %s failed: %s%s", r.File, r.Line, r.Name, r.Error, r.Output)
		}
	}
	for _, file := range report.Coverage {
		if len(file.Missed) > 0 {
			t.Errorf("%s: no test reaches lines %v", file.File, file.Missed)
		}
	}
	if len(report.Results) < 25 {
		t.Errorf("only %d tests ran", len(report.Results))
	}
}
