package release

import (
	"errors"
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
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
)

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

// fakeDiscovery is a discovery client with fixed types.
type fakeDiscovery struct {
	discovery.DiscoveryInterface
	lists []*metav1.APIResourceList
}

func (d fakeDiscovery) ServerPreferredResources() ([]*metav1.APIResourceList, error) {
	return d.lists, nil
}

func object(name string, finalizers ...string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, UID: types.UID("u-" + name), ResourceVersion: "1", Finalizers: finalizers},
	}
}

// newReleaser returns a Releaser for a cluster with ConfigMaps, and with types that can't be
// listed and patched.
func newReleaser(t *testing.T, objects ...runtime.Object) (*Releaser, *fake.FakeMetadataClient) {
	t.Helper()
	scheme := fake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	client := fake.NewSimpleMetadataClient(scheme, objects...)
	return &Releaser{Metadata: client, Discovery: fakeDiscovery{lists: []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"list", "patch"}},
		{Name: "configmaps/status", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"list", "patch"}},
		{Name: "bindings", Kind: "Binding", Namespaced: true, Verbs: metav1.Verbs{"create"}},
	}}}}}, client
}

func TestFind_SelectsFinalizersAndObjects(t *testing.T) {
	r, _ := newReleaser(t, object("held", graph.Hold, "example.com/a"), object("in-use", v1alpha1.InUseFinalizer), object("other", "example.com/a"), object("none"),
		object("archived", "shop.archive.gleaner.dev/p", "example.com/b"))
	for claim, c := range map[string]struct {
		where Selection
		want  map[string][]string // finalizers by object
	}{
		"Gleaner's own by default": {Selection{}, map[string][]string{"held": {graph.Hold}, "in-use": {v1alpha1.InUseFinalizer}, "archived": {"shop.archive.gleaner.dev/p"}}},
		"a named finalizer":        {Selection{Finalizers: []string{"example.com/a"}}, map[string][]string{"held": {"example.com/a"}, "other": {"example.com/a"}}},
		"excluded resource":        {Selection{SelectResource: func(schema.GroupResource) bool { return false }}, map[string][]string{}},
		"another namespace":        {Selection{Namespace: "elsewhere"}, map[string][]string{}},
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

func TestRelease_KeepsOtherFinalizersAndState(t *testing.T) {
	o := object("held", graph.Hold, "example.com/a")
	o.Annotations = map[string]string{objectstate.Annotation: "{}", objectstate.FinalizersAnnotation: `{"uid":"u-held","by":{"example.com/a":{}}}`, "theirs": "x"}
	o.Annotations[objectstate.GracePeriodAnnotation] = "{}"
	r, client := newReleaser(t, o)
	held, err := r.Find(t.Context(), Selection{})
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
	if diff := cmp.Diff(map[string]string{objectstate.FinalizersAnnotation: `{"uid":"u-held","by":{"example.com/a":{}}}`, "theirs": "x"}, live.Annotations); diff != "" {
		t.Errorf("annotations (-want +got):\n%s", diff)
	}
}

// An object can be deleted after it was listed.
func TestRelease_KeepTerminating_KeepsWhatIsBeingDeleted(t *testing.T) {
	o := object("held", graph.Hold)
	r, client := newReleaser(t, o)
	r.KeepTerminating = true
	held, err := r.Find(t.Context(), Selection{})
	if err != nil || len(held) != 1 || held[0].Terminating {
		t.Fatalf("found %v, %v", held, err)
	}
	deleted := o.DeepCopy()
	deleted.DeletionTimestamp = ptr.To(metav1.Now())
	if err := client.Tracker().Update(configMaps, deleted, "shop"); err != nil {
		t.Fatal(err)
	}
	if released, err := r.Release(t.Context(), held[0]); released || !errors.Is(err, errTerminating) {
		t.Errorf("released: %t, %v", released, err)
	}
	live, err := client.Resource(configMaps).Namespace("shop").Get(t.Context(), "held", metav1.GetOptions{})
	if err != nil || len(live.Finalizers) != 1 {
		t.Errorf("finalizers are %v, %v", live.Finalizers, err)
	}
}

func TestRelease_IgnoresReplacedObjects(t *testing.T) {
	r, client := newReleaser(t, object("held", graph.Hold))
	for claim, h := range map[string]HeldObject{
		"replaced object": {Resource: configMaps, Namespace: "shop", Name: "held", UID: "u-before", Finalizers: []string{graph.Hold}},
		"deleted object":  {Resource: configMaps, Namespace: "shop", Name: "gone", UID: "u-gone", Finalizers: []string{graph.Hold}},
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

func TestRelease_RetriesAfterAConflict(t *testing.T) {
	r, client := newReleaser(t, object("held", graph.Hold))
	conflicts := 0
	client.PrependReactor("patch", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) {
		if conflicts++; conflicts > 1 {
			return false, nil, nil
		}
		return true, nil, apierrors.NewConflict(configMaps.GroupResource(), "held", nil)
	})
	held := HeldObject{Resource: configMaps, Namespace: "shop", Name: "held", UID: "u-held", Finalizers: []string{graph.Hold}}
	if released, err := r.Release(t.Context(), held); !released || err != nil || conflicts != 2 {
		t.Errorf("released: %t, %v after %d writes", released, err, conflicts)
	}
}

func TestFind_ReturnsOtherObjectsWithTheError(t *testing.T) {
	r, client := newReleaser(t, object("held", graph.Hold))
	types := r.Discovery.(fakeDiscovery)
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
	held, err := r.Find(t.Context(), Selection{})
	if len(held) != 1 || !apierrors.IsForbidden(err) {
		t.Errorf("found %v, %v", held, err)
	}
}

func TestRelease_ReleasesObjectsOfADeletedCRD(t *testing.T) {
	r, _ := newReleaser(t, object("held", graph.Hold))
	types := r.Discovery.(fakeDiscovery)
	types.lists[0].APIResources[0].Verbs = metav1.Verbs{"delete", "deletecollection", "get", "list", "watch"} // as in discovery then
	held, err := r.Find(t.Context(), Selection{})
	if err != nil || len(held) != 1 {
		t.Fatalf("found %v, %v", held, err)
	}
	if released, err := r.Release(t.Context(), held[0]); !released || err != nil {
		t.Errorf("released: %t, %v", released, err)
	}
}
