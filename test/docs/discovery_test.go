package docs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A control plane can be given the address of one that has ended, whose discovery kubectl has
// cached in the home directory.
func TestDev_KubectlDoesNotUseCacheOfEarlierControlPlane(t *testing.T) {
	tree := newTree(t, "dev")
	s := newSession(t, tree)
	s.replace = strings.NewReplacer()
	s.useDevCluster(t)
	config, err := sharedDev.config()
	if err != nil {
		t.Fatal(err)
	}
	home := t.TempDir()
	cache := filepath.Join(home, ".kube/cache/discovery", strings.ReplaceAll(strings.TrimPrefix(config.Host, "https://"), ":", "_"))
	if err := os.MkdirAll(cache, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(cache, "servergroups.json"), []byte(`{"kind":"APIGroupList","apiVersion":"v1","groups":[]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "bash", "-c", sharedDev.export+"; exec kubectl get gleaner -A")
	command.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
	if out, err := command.CombinedOutput(); err != nil {
		t.Errorf("%v: %s", err, out)
	}
}
