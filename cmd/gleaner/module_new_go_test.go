package main

import (
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/cli/module"
)

// offline has the go command find all that it needs in the folder.
func offline(t *testing.T) {
	t.Helper()
	t.Setenv("GOFLAGS", "-mod=mod")
	t.Setenv("GOPROXY", "off")
	t.Setenv("GOWORK", "off")
}

func TestModuleNew_Go_PassesItsTests(t *testing.T) {
	for _, hook := range newHooks {
		t.Run(hook, func(t *testing.T) {
			offline(t)
			newModuleFolder(t, "go", hook)
			if out, err := exec.CommandContext(t.Context(), "gofmt", "-l", ".").CombinedOutput(); err != nil || len(out) != 0 {
				t.Errorf("not formatted: %s, %v", out, err)
			}
			for _, command := range []string{"vet", "test"} {
				if out, err := exec.CommandContext(t.Context(), "go", command, "./...").CombinedOutput(); err != nil {
					t.Fatalf("go %s: %v\n%s", command, err, out)
				}
			}
			out, err := execute(t, "module", "build")
			if err != nil {
				t.Fatal(err)
			}
			containsAll(t, out, module.BuiltModule, "hooks   "+hook, "digest: ", "fits into a ConfigMap", "gleaner module push "+module.BuiltModule)
			if out, err = execute(t, "test"); err != nil {
				t.Fatalf("%v\n%s", err, out)
			}
			containsAll(t, out, "ok ", "cases.yaml")
			checkResources(t, module.BuiltModule)
		})
	}
}

func TestModuleNew_CopiesSDKWithoutTests(t *testing.T) {
	newModuleFolder(t, "go", "collect")
	var missing []string
	for _, name := range []string{"hostabi/go.mod", "hostabi/request.go", "sdk/go/go.mod", "sdk/go/gleaner.go", "sdk/go/README.md",
		"sdk/go/finalize/finalize.go", "sdk/go/gleanertest/gleanertest.go", "sdk/go/internal/guest/guest.go"} {
		if _, err := os.Stat(filepath.Join("gleaner-sdk", filepath.FromSlash(name))); err != nil {
			missing = append(missing, name)
		}
	}
	if missing != nil {
		t.Errorf("there is no %v", missing)
	}
	err := filepath.WalkDir("gleaner-sdk", func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, "_test.go") {
			t.Errorf("%s came along", path)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
