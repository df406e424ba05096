package library_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/policies/library"
	"github.com/gleaner-dev/gleaner/policies/source"
)

var digest = regexp.MustCompile(`\bdigest: [0-9a-f]{64}\b`)

const (
	generated            = "# Written by go test -rewrite, of what README.md has.\n"
	monitorKustomization = "resources: [resources.yaml]\n"
	enforceKustomization = `resources: [../../%s]
patches:
- target: {kind: ClusterGCPolicy}
  patch: |
    - {op: replace, path: /spec/mode, value: Enforce}
`
)

// checkFile compares a file with what has to be in it, or writes it.
func checkFile(t *testing.T, name, want string) {
	t.Helper()
	if *rewrite {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(name)
	if err != nil {
		t.Fatalf("%v; run go test with -rewrite", err)
	}
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("%s (-want +got); run go test with -rewrite:\n%s", name, diff)
	}
}

// What kubectl apply -k takes is what the README shows.
func TestPolicies_HaveResourcesOfTheirReadme(t *testing.T) {
	forEachPolicy(t, func(t *testing.T, p library.Policy) {
		readme := filepath.Join(p.Name, "README.md")
		pinned := "digest: " + source.Digest([]source.File{{Data: []byte(p.Source)}})
		checkFile(t, readme, digest.ReplaceAllString(text(t, readme), pinned))
		all := strings.Join(documents(library.Policy{Readme: text(t, readme)}), "---\n")
		checkFile(t, filepath.Join(p.Name, "resources.yaml"), generated+all)
		checkFile(t, filepath.Join(p.Name, "kustomization.yaml"), generated+monitorKustomization)
		checkFile(t, filepath.Join("enforce", p.Name, "kustomization.yaml"), generated+fmt.Sprintf(enforceKustomization, p.Name))
		for _, command := range []string{"kubectl apply -k policies/library/" + p.Name + "\n", "kubectl apply -k policies/library/enforce/" + p.Name + "\n"} {
			if !strings.Contains(p.Readme, command) {
				t.Errorf("its README lacks %s", command)
			}
		}
	})
}
