package examples

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gleaner-dev/gleaner/policies/policytest"
)

// TestEachModulePassesItsOwnTests runs what a reader runs first.
func TestEachModulePassesItsOwnTests(t *testing.T) {
	for _, name := range goExamples {
		t.Run(name, func(t *testing.T) {
			for _, args := range [][]string{{"vet", "./..."}, {"test", "./..."}} {
				cmd := exec.CommandContext(t.Context(), "go", args...)
				cmd.Dir = folder(name)
				cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("go %s: %v\n%s", args[0], err, out)
				}
			}
		})
	}
}

func TestEachModuleAnswersItsCasesInTheSandbox(t *testing.T) {
	for _, name := range goExamples {
		t.Run(name, func(t *testing.T) {
			policytest.Run(t, asker(t, name), filepath.Join(folder(name), "cases.yaml"))
		})
	}
}

func TestEachModuleFitsIntoAConfigMap(t *testing.T) {
	for _, name := range goExamples {
		t.Run(name, func(t *testing.T) {
			m := build(t, name)
			t.Logf("%d KiB, %d KiB compressed", len(m.code)>>10, len(m.zipped)>>10)
			if len(m.zipped) >= maxConfigMap {
				t.Errorf("it has %d bytes compressed, and may have %d", len(m.zipped), maxConfigMap)
			}
		})
	}
}
