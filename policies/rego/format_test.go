package rego_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/open-policy-agent/opa/v1/format"
)

// What opa fmt does.
func TestFiles_AreFormatted(t *testing.T) {
	found := 0
	for _, folder := range []string{"../../sdk/rego", "../library", "../policytest/testdata", "../../examples"} {
		err := filepath.WalkDir(folder, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() || filepath.Ext(name) != ".rego" {
				return err
			}
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			formatted, err := format.Source(name, text)
			if err != nil {
				return err
			}
			found++
			if diff := cmp.Diff(string(formatted), string(text)); diff != "" {
				t.Errorf("%s (-formatted +is):\n%s", name, diff)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 40 {
		t.Errorf("only %d files were found", found)
	}
}
