package crds_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/crds"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

func definitions(t *testing.T) []*apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	list, err := crds.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	return list
}

func TestDefinitions_CoverEveryKind(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, definition := range definitions(t) {
		names = append(names, definition.Name)
		for _, kind := range []string{definition.Spec.Names.Kind, definition.Spec.Names.ListKind} {
			if !scheme.Recognizes(v1alpha1.GroupVersion.WithKind(kind)) {
				t.Errorf("%s: the scheme does not know %s", definition.Name, kind)
			}
		}
	}
	want := []string{
		"archivepolicies.gleaner.dev", "clusterarchivepolicies.gleaner.dev", "clusterdeletionbudgets.gleaner.dev",
		"clusterfinalizers.gleaner.dev", "clustergcpolicies.gleaner.dev", "clusterpauses.gleaner.dev", "clusterpolicymodules.gleaner.dev", "clusterretentionpolicies.gleaner.dev", "deletionbudgets.gleaner.dev",
		"finalizers.gleaner.dev", "gcpolicies.gleaner.dev", "imageremovalrequests.gleaner.dev", "noderetentionpolicies.gleaner.dev", "noderetentions.gleaner.dev", "pauses.gleaner.dev", "policymodules.gleaner.dev", "retentionpolicies.gleaner.dev",
	}
	if diff := cmp.Diff(want, names); diff != "" {
		t.Errorf("definitions (-want +got):\n%s", diff)
	}
}

func TestKustomizations_ListEveryManifest(t *testing.T) {
	folders, err := filepath.Glob("manifests/*/kustomization.yaml")
	if err != nil || len(folders) == 0 {
		t.Fatal("no folders of components: ", err)
	}
	for _, file := range append(folders, "manifests/kustomization.yaml") {
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var kustomization struct {
			Resources []string `json:"resources"`
		}
		if err := yaml.Unmarshal(data, &kustomization); err != nil {
			t.Fatal(err)
		}
		paths, err := filepath.Glob(filepath.Join(filepath.Dir(file), "gleaner.dev_*.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var files []string
		for _, path := range paths {
			files = append(files, filepath.Base(path))
		}
		if diff := cmp.Diff(files, kustomization.Resources); diff != "" {
			t.Errorf("%s: resources (-want +got):\n%s", file, diff)
		}
	}
}

func TestComponent_IsTheFolderOfTheManifest(t *testing.T) {
	for definition, want := range map[string]string{
		"archivepolicies.gleaner.dev": "archive", "clusterarchivepolicies.gleaner.dev": "archive",
		"pauses.gleaner.dev": "safety", "clusterpauses.gleaner.dev": "safety",
		"deletionbudgets.gleaner.dev": "safety", "clusterdeletionbudgets.gleaner.dev": "safety",
		"retentionpolicies.gleaner.dev": "retention", "clusterretentionpolicies.gleaner.dev": "retention",
		"noderetentionpolicies.gleaner.dev": "node", "noderetentions.gleaner.dev": "node", "imageremovalrequests.gleaner.dev": "node",
		"finalizers.gleaner.dev": "", "archivepolicies.example.com": "", "policies.gleaner.dev": "", "*": "", "": "",
	} {
		if got := crds.Component(definition); got != want {
			t.Errorf("%q: got %q, want %q", definition, got, want)
		}
	}
}

// A field without a comment is one that kubectl explain has nothing to say about.
func TestFields_HaveADescription(t *testing.T) {
	for _, definition := range definitions(t) {
		schema := definition.Spec.Versions[0].Schema.OpenAPIV3Schema
		for _, part := range []string{"spec", "status"} {
			if property, ok := schema.Properties[part]; ok {
				checkDescribed(t, definition.Name+": "+part, property)
			}
		}
	}
}

func checkDescribed(t *testing.T, at string, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	if schema.Description == "" {
		t.Errorf("%s has no description", at)
	}
	for name, property := range schema.Properties {
		checkDescribed(t, at+"."+name, property)
	}
	if schema.Items != nil {
		for name, property := range schema.Items.Schema.Properties {
			checkDescribed(t, at+"[]."+name, property)
		}
	}
}

// What has no bound may be so large that the API server gives up on the rules
// about it, and cost estimates of rules rely on it.
func TestSpecFields_AreBounded(t *testing.T) {
	for _, definition := range definitions(t) {
		checkBounded(t, definition.Name+": spec", definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["spec"])
	}
}

func checkBounded(t *testing.T, at string, schema apiextensionsv1.JSONSchemaProps) {
	t.Helper()
	switch {
	case strings.HasSuffix(at, "Selector"):
		return // of a type that is not ours
	case schema.Type == "array" && schema.MaxItems == nil:
		t.Errorf("%s has no maxItems", at)
	case schema.Type == "string" && schema.MaxLength == nil && len(schema.Enum) == 0:
		t.Errorf("%s has neither maxLength nor enum", at)
	case schema.AdditionalProperties != nil && schema.MaxProperties == nil:
		t.Errorf("%s may have any number of fields", at)
	case schema.AdditionalProperties != nil:
		checkBounded(t, at+"{}", *schema.AdditionalProperties.Schema)
	}
	for name, property := range schema.Properties {
		checkBounded(t, at+"."+name, property)
	}
	if schema.Items != nil {
		checkBounded(t, at+"[]", *schema.Items.Schema)
	}
}

func TestPolicyStatus_BoundsResources(t *testing.T) {
	found := 0
	for _, definition := range definitions(t) {
		resources, ok := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties["resources"]
		if !ok {
			continue
		}
		found++
		if resources.MaxItems == nil || *resources.MaxItems != v1alpha1.MaxStatusResources {
			t.Errorf("%s: maxItems is not %d", definition.Name, v1alpha1.MaxStatusResources)
		}
	}
	if found != 2 {
		t.Errorf("%d kinds list resources in their status, want both kinds of policies", found)
	}
}

func TestStatus_BoundsStalledObjects(t *testing.T) {
	found := 0
	for _, definition := range definitions(t) {
		stuck, ok := definition.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties["status"].Properties["stalledObjects"]
		if !ok {
			continue
		}
		found++
		if stuck.MaxItems == nil || *stuck.MaxItems != v1alpha1.MaxStalledObjects {
			t.Errorf("%s: maxItems is not %d", definition.Name, v1alpha1.MaxStalledObjects)
		}
	}
	if found != 4 {
		t.Errorf("%d kinds list stalled objects in their status, want those of finalizers and of archive policies", found)
	}
}
