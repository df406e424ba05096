package release

import (
	"net/http"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/memo"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// discovered are the types that discovery tells of.
type discovered struct {
	discovery.DiscoveryInterface
	lists []*metav1.APIResourceList
}

func (d discovered) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return d.lists, nil
}

func object(name string, finalizers ...string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("u-" + name), ResourceVersion: "1", Finalizers: finalizers},
	}
}

// releaser is one in a cluster that has ConfigMaps, and types that nothing can be taken
// off.
func releaser(t *testing.T, objects ...runtime.Object) (*Releaser, *fake.FakeMetadataClient) {
	t.Helper()
	scheme := fake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	client := fake.NewSimpleMetadataClient(scheme, objects...)
	return &Releaser{Metadata: client, Discovery: discovered{lists: []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"list", "patch"}},
		{Name: "configmaps/status", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"list", "patch"}},
		{Name: "bindings", Kind: "Binding", Namespaced: true, Verbs: metav1.Verbs{"create"}},
	}}}}}, client
}

func TestOnlyWhatIsLookedForIsFound(t *testing.T) {
	r, _ := releaser(t, object("held", graph.Hold, "example.com/a"), object("in-use", InUse), object("other", "example.com/a"), object("none"))
	for claim, c := range map[string]struct {
		where Where
		want  map[string][]string // what is looked for, by object
	}{
		"Gleaner's own, unless others are named": {Where{}, map[string][]string{"held": {graph.Hold}, "in-use": {InUse}}},
		"one that is named, and none of ours":    {Where{Finalizers: []string{"example.com/a"}}, map[string][]string{"held": {"example.com/a"}, "other": {"example.com/a"}}},
		"nothing of a resource that is left out": {Where{Select: func(schema.GroupResource) bool { return false }}, map[string][]string{}},
		"nothing of another namespace":           {Where{Namespace: "elsewhere"}, map[string][]string{}},
	} {
		t.Run(claim, func(t *testing.T) {
			held, err := r.Find(t.Context(), c.where)
			if err != nil {
				t.Fatal(err)
			}
			found := map[string][]string{}
			for _, h := range held {
				found[h.Name] = h.Finalizers
			}
			if diff := cmp.Diff(c.want, found); diff != "" {
				t.Errorf("found (-want +got):\n%s", diff)
			}
		})
	}
}

func TestOthersFinalizersAndNotesStay(t *testing.T) {
	o := object("held", graph.Hold, "example.com/a")
	o.Annotations = map[string]string{memo.Annotation: "{}", Notes: `{"uid":"u-held","by":{"example.com/a":{}}}`, "theirs": "x"}
	r, client := releaser(t, o)
	held, err := r.Find(t.Context(), Where{})
	if err != nil || len(held) != 1 {
		t.Fatalf("found %v, %v", held, err)
	}
	if released, err := r.Release(t.Context(), held[0]); !released || err != nil {
		t.Fatalf("released: %t, %v", released, err)
	}
	live, err := client.Resource(configMaps).Namespace("shop").Get(t.Context(), "held", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"example.com/a"}, live.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{Notes: `{"uid":"u-held","by":{"example.com/a":{}}}`, "theirs": "x"}, live.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

func TestAnObjectOfTheSameNameIsLeftAlone(t *testing.T) {
	r, client := releaser(t, object("held", graph.Hold))
	for claim, h := range map[string]Held{
		"that is another one by now": {Resource: configMaps, Namespace: "shop", Name: "held", UID: "u-before", Finalizers: []string{graph.Hold}},
		"that is gone":               {Resource: configMaps, Namespace: "shop", Name: "gone", UID: "u-gone", Finalizers: []string{graph.Hold}},
	} {
		t.Run(claim, func(t *testing.T) {
			if released, err := r.Release(t.Context(), h); released || err != nil {
				t.Errorf("released: %t, %v", released, err)
			}
		})
	}
	for _, a := range client.Actions() {
		if a.GetVerb() == "patch" {
			t.Errorf("it has written: %v", a)
		}
	}
}

func TestAConflictIsTriedAgainWithTheObjectAsItIsThen(t *testing.T) {
	r, client := releaser(t, object("held", graph.Hold))
	conflicts := 0
	client.PrependReactor("patch", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if conflicts++; conflicts > 1 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(configMaps.GroupResource(), "held", nil)
	})
	held := Held{Resource: configMaps, Namespace: "shop", Name: "held", UID: "u-held", Finalizers: []string{graph.Hold}}
	if released, err := r.Release(t.Context(), held); !released || err != nil || conflicts != 2 {
		t.Errorf("released: %t, %v after %d writes", released, err, conflicts)
	}
}

func TestATypeThatCanNotBeListedIsAnErrorAndTheRestIsFound(t *testing.T) {
	r, client := releaser(t, object("held", graph.Hold))
	types := r.Discovery.(discovered)
	types.lists[0].APIResources = append([]metav1.APIResource{
		{Name: "secrets", Kind: "Secret", Namespaced: true, Verbs: metav1.Verbs{"list", "patch"}},
		{Name: "gone", Kind: "Gone", Namespaced: true, Verbs: metav1.Verbs{"list", "patch"}},
	}, types.lists[0].APIResources...)
	client.PrependReactor("list", "secrets", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "secrets"}, "", nil)
	})
	client.PrependReactor("list", "gone", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewGenericServerResponse(http.StatusNotFound, "list", schema.GroupResource{Resource: "gone"}, "", "", 0, true)
	})
	held, err := r.Find(t.Context(), Where{})
	if len(held) != 1 || !apierrors.IsForbidden(err) {
		t.Errorf("found %v, %v", held, err)
	}
}

func TestObjectsAreReleasedForWhichTheDeletionOfTheirTypeWaits(t *testing.T) {
	r, _ := releaser(t, object("held", graph.Hold))
	types := r.Discovery.(discovered)
	types.lists[0].APIResources[0].Verbs = metav1.Verbs{"delete", "deletecollection", "get", "list", "watch"} // as discovery tells then
	held, err := r.Find(t.Context(), Where{})
	if err != nil || len(held) != 1 {
		t.Fatalf("found %v, %v", held, err)
	}
	if released, err := r.Release(t.Context(), held[0]); !released || err != nil {
		t.Errorf("released: %t, %v", released, err)
	}
}

func TestWhatIsRememberedForOthersIsKept(t *testing.T) {
	of := func(finalizer string) bool { return finalizer == "a" }
	for claim, c := range map[string]struct {
		text string
		want *string
	}{
		"of two, that of the other":     {`{"uid":"u","by":{"a":{},"b":{"n":1}}}`, new(`{"uid":"u","by":{"b":{"n":1}}}`)},
		"of one, nothing":               {`{"uid":"u","by":{"a":{}}}`, nil},
		"of what says nothing, nothing": {`no JSON`, nil},
	} {
		t.Run(claim, func(t *testing.T) {
			if diff := cmp.Diff(c.want, forget(c.text, of)); diff != "" {
				t.Errorf("kept (-want +got):\n%s", diff)
			}
		})
	}
}
