package survey

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// fromFile returns a survey of YAML documents.
func fromFile(t *testing.T, text string) (*Survey, error) {
	t.Helper()
	var objects []*unstructured.Unstructured
	for document := range strings.SplitSeq(text, "---\n") {
		o := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(document), &o.Object); err != nil {
			t.Fatal(err)
		}
		objects = append(objects, o)
	}
	return Files(objects, time.Now)
}

const family = `
apiVersion: v1
kind: ConfigMap
metadata: {namespace: shop, name: owner, uid: u-owner}
---
apiVersion: v1
kind: ConfigMap
metadata:
  namespace: shop
  name: dependent
  uid: u-dependent
  annotations: {gleaner.dev/memo: "{}", theirs: secret}
  ownerReferences:
  - {apiVersion: v1, kind: ConfigMap, name: owner, uid: u-owner}
  - {apiVersion: example.com/v1, kind: Thing, name: elsewhere, uid: u-elsewhere}
---
apiVersion: v1
kind: ConfigMap
metadata: {namespace: shop, name: plain}
`

func TestFiles_MissingOwnerIsUnknown(t *testing.T) {
	s, err := fromFile(t, family)
	if err != nil {
		t.Fatal(err)
	}
	facts, ok := s.Facts(t.Context(), graph.IDOf("u-dependent"))
	if !ok || len(facts.Owners) != 2 {
		t.Fatalf("known: %t, %+v", ok, facts.Owners)
	}
	for i, want := range []decide.OwnerStatus{decide.Present, decide.Unknown} {
		if got := facts.Owners[i]; got.Status != want {
			t.Errorf("%s is %s, because %q", got.Reference.Name, got.Status, got.Message)
		}
	}
	if got := decide.Classify(facts).Kind; got == decide.Ownerless {
		t.Error("an object with an owner outside the files counts as having none")
	}
}

func TestFiles_KeepsOnlyGleanerAnnotations(t *testing.T) {
	s, err := fromFile(t, family)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"gleaner.dev/memo": "{}"}, s.Items[graph.IDOf("u-dependent")].Meta.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
	if whole := s.Items[graph.IDOf("u-dependent")].Object; whole.GetAnnotations()["theirs"] == "" {
		t.Error("the object itself has lost some")
	}
}

func TestFiles_GeneratesMissingMetadata(t *testing.T) {
	s, err := fromFile(t, family)
	if err != nil {
		t.Fatal(err)
	}
	item, ok := s.Items[graph.IDOf("file:ConfigMap:shop/plain")]
	if !ok || item.Meta.ResourceVersion == "" {
		t.Errorf("there: %t, %+v", ok, item.Meta)
	}
}

func TestFiles_TypesFromObjectsOwnersAndDefinitions(t *testing.T) {
	s, err := fromFile(t, family+`---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: policies.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Policy, plural: policies, shortNames: [pol]}
  versions: [{name: v1}]
`)
	if err != nil {
		t.Fatal(err)
	}
	for word, want := range map[string]schema.GroupVersionResource{
		"cm": {Version: "v1", Resource: "configmaps"}, "things": {Group: "example.com", Version: "v1", Resource: "things"},
		"pol": {Group: "example.com", Version: "v1", Resource: "policies"}, "policy": {Group: "example.com", Version: "v1", Resource: "policies"},
	} {
		kind, err := s.Mapper.KindFor(schema.GroupVersionResource{Resource: word})
		if err != nil {
			t.Errorf("%s: %v", word, err)
			continue
		}
		if r, ok := s.Types.Preferred(kind.GroupKind()); !ok || r.Version != want {
			t.Errorf("%s is %v, want %v", word, r.Version, want)
		}
	}
	if absent, err := s.Absent(t.Context(), schema.GroupKind{Group: "example.com", Kind: "Policy"}); absent || err != nil {
		t.Errorf("a type that is defined is absent: %t, %v", absent, err)
	}
}

func TestFiles_UnknownOutsideTheFiles(t *testing.T) {
	s, err := fromFile(t, family)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Serves(t.Context(), schema.GroupVersionResource{Version: "v1", Resource: "secrets"}); !errors.Is(err, errNotInFiles) {
		t.Errorf("type outside the files: %v", err)
	}
	if !s.FromFiles {
		t.Error("it takes itself for a survey of a cluster")
	}
}

func TestFiles_RequiresKind(t *testing.T) {
	if _, err := fromFile(t, "metadata: {name: a}\n"); err == nil || !strings.Contains(err.Error(), "set both") {
		t.Errorf("it says %v", err)
	}
}

func TestUnread_String(t *testing.T) {
	secrets, err := schema.GroupResource{Resource: "secrets"}, errors.New("forbidden")
	for want, u := range map[string]Unread{
		"secrets: forbidden":                           {Resource: secrets, Err: err},
		"secrets outside of namespace shop: forbidden": {Resource: secrets, Err: err, OnlyNamespace: "shop"},
	} {
		if got := u.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}
