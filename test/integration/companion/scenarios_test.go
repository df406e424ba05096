package policies

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

// The scenarios are links to the files of test/integration/policies, and not functions
// of a package that both import: Go finds tests by their files, so each would need a
// function here that calls it, and the one that is forgotten would be missed by nobody.
// A package for each mode has a control plane for each, and both run at the same time.
// Where links can't be checked out, copies do.

func TestEveryScenarioOfPoliciesAndFinalizersRunsBesideTheOtherCollector(t *testing.T) {
	files, err := filepath.Glob("../policies/*_test.go")
	if err != nil || len(files) < 9 {
		t.Fatalf("found %q: %v", files, err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		if name == "main_test.go" { // how the collector is run
			continue
		}
		there, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if here, err := os.ReadFile(name); err != nil || !bytes.Equal(here, there) {
			t.Errorf("%s does not run beside the other collector: ln -s %s test/integration/companion/ (%v)", name, file, err)
		}
	}
}
