package crds

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var documented = regexp.MustCompile("(?s)```yaml\n(apiVersion: gleaner.dev/.*?)```")

func TestDocumentation_ResourcesAreAccepted(t *testing.T) {
	a := newAPI(t)
	a.kubectl("create", "namespace", "shop")
	t.Cleanup(func() {
		if _, err := a.cluster.Kubectl(context.WithoutCancel(t.Context()), "delete", "namespace", "shop", "--wait=false"); err != nil {
			t.Error(err)
		}
	})
	for _, page := range []string{
		"finalizers.md", "policies.md",
		"howto/from-handwritten-finalizers.md", "howto/from-k8s-cleaner.md", "howto/from-kyverno.md",
	} {
		data, err := os.ReadFile("../../../docs/" + page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := documented.FindAllSubmatch(data, -1)
		if len(blocks) == 0 {
			t.Errorf("%s has no resources: the search is broken", page)
		}
		for _, block := range blocks {
			path := filepath.Join(t.TempDir(), "resources.yaml")
			if err := os.WriteFile(path, block[1], 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := a.cluster.Kubectl(t.Context(), "create", "--dry-run=server", "--validate=strict", "-f", path); err != nil {
				t.Errorf("%s: %v\n%s", page, err, block[1])
			}
		}
	}
}
