package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/test/pins"
)

var (
	fenced = regexp.MustCompile("(?s)```ya?ml\n(.*?)```")
	ends   = regexp.MustCompile(`(?m)^---[ ]*$`)
)

// A reader who copies a policy with its module gets an enforced policy, without a
// missing or mismatched digest.
func TestPolicies_ShownWithTheirModule_PinIt(t *testing.T) {
	found := 0
	for _, folder := range []string{"docs", "examples", "policies/library", "README.md"} {
		err := filepath.WalkDir(filepath.Join(root, folder), func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			switch filepath.Ext(path) {
			case ".yaml":
				found += countPinned(t, path, string(content))
			case ".md":
				for _, block := range fenced.FindAllStringSubmatch(string(content), -1) {
					found += countPinned(t, path, block[1])
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if found < 8 {
		t.Errorf("found %d policies with modules", found)
	}
}

// countPinned counts the policies in a manifest that also has their module, and checks
// their pins.
func countPinned(t *testing.T, path, manifest string) (found int) {
	modules := map[string]string{}
	var others []*unstructured.Unstructured
	for _, text := range ends.Split(manifest, -1) {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil || o.Object == nil {
			continue
		}
		if text, inline, _ := unstructured.NestedString(o.Object, "spec", "rego", "inline"); inline {
			modules[o.GetName()] = pins.Of(text)
			continue
		}
		others = append(others, o)
	}
	for _, o := range others {
		name, _, _ := unstructured.NestedString(o.Object, "spec", "module", "name")
		want, is := modules[name]
		if !is || strings.HasSuffix(o.GetKind(), "Module") {
			continue
		}
		found++
		if got, _, _ := unstructured.NestedString(o.Object, "spec", "module", "digest"); got != want {
			t.Errorf("%s: %s %s pins %q; write digest: %s", path, o.GetKind(), o.GetName(), got, want)
		}
	}
	return found
}
