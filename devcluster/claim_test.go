package devcluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestSweep_RemovesOnlyAbandonedFolders(t *testing.T) {
	if !hasLocks {
		t.Skip("needs file locks")
	}
	t.Setenv("TMPDIR", t.TempDir())
	folders := map[string]string{}
	for _, name := range []string{"alive", "dead", "kept for its logs"} {
		dir := filepath.Join(os.TempDir(), strings.Replace(tempPattern, "*", name, 1))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		folders[name] = dir
		if name == "kept for its logs" {
			continue // has no claim
		}
		claim, err := claimFolder(dir)
		if err != nil {
			t.Fatal(err)
		}
		if name == "dead" { // its system closes the files of a dead process
			if err := claim.Close(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		t.Cleanup(func() { _ = claim.Close() })
	}
	sweep()
	for name, dir := range folders {
		_, err := os.Stat(dir)
		if isThere, want := err == nil, name != "dead"; isThere != want {
			t.Errorf("folder of the %s: there is %t, want %t", name, isThere, want)
		}
	}
}
