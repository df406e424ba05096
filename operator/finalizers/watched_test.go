package finalizers

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/policies"
)

func needs(n policies.Needs) func(*policies.Finalizer) {
	return func(f *policies.Finalizer) { f.Needs = n }
}

// newWatchedEnv returns a testEnv with a ConfigMap that waits for the finalizer. The resourceVersions
// of its API server can be compared.
func newWatchedEnv(t *testing.T, change ...func(*policies.Finalizer)) (*testEnv, *unstructured.Unstructured) {
	w := newTestEnv(t, change...)
	w.types = catalog.Build(nil, []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"delete", "get", "list", "patch", "watch"}},
	}}}, catalog.Settings{Local: map[schema.GroupVersion]bool{{Version: "v1"}: true}})
	w.restart(w.controller.finalizer().Finalizer)
	o := newObject("ConfigMap", "ns", "a", entry)
	o.SetDeletionTimestamp(&metav1.Time{Time: start})
	o.SetCreationTimestamp(metav1.Time{Time: start})
	o.SetLabels(map[string]string{"keep": "true"})
	o = w.api.create(o)
	w.api.countRequests("")
	return w, o
}

// watch is a watch event of an object.
func (w *testEnv) watch(o *unstructured.Unstructured) {
	metadata := &metav1.PartialObjectMetadata{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o.Object, metadata); err != nil {
		w.Fatal(err)
	}
	w.runner.Apply(graph.Seen{Object: graph.ObjectOf(o.GroupVersionKind(), o), Metadata: metadata})
}

func TestWatched_IsNotReadAgain(t *testing.T) {
	for n, reads := range map[policies.Needs]int{policies.NeedsReference: 0, policies.NeedsMetadata: 0, policies.NeedsObject: 1} {
		t.Run(string(n), func(t *testing.T) {
			w, o := newWatchedEnv(t, needs(n))
			w.watch(o)
			w.reconcile(o)
			w.wantOutcome(Done, "")
			if got := w.api.countRequests("GET /api/v1/namespaces/ns/configmaps"); got != reads {
				t.Errorf("got %d reads, want %d", got, reads)
			}
			want := map[string]string{"keep": "true"}
			if n == policies.NeedsReference {
				want = nil
			}
			request := w.module.takeRequests()[0]
			if got := request.Object.Metadata; len(got.Labels) != len(want) || got.UID != string(o.GetUID()) || got.DeletionTimestamp == nil {
				t.Errorf("the module got %+v", got)
			}
		})
	}
}

// The module gets the same document from a watch and from a read, and what it has failed for is the
// same object in both.
func TestWatched_EqualsRead(t *testing.T) {
	w, o := newWatchedEnv(t, needs(policies.NeedsMetadata))
	w.module.returns(failVerdict)
	w.watch(o)
	w.reconcile(o)
	w.wantOutcome(Failed, failVerdict.Reason)
	watched := w.module.takeRequests()[0]
	w.reconcile(o) // read, since an evaluation has begun
	if again := w.module.takeRequests(); len(again) != 0 {
		t.Errorf("evaluated again, although nothing has changed: %+v", again)
	}
	w.restart(w.controller.finalizer().Finalizer) // forgets what was seen
	w.api.change(o, func(o *unstructured.Unstructured) { o.SetAnnotations(nil) })
	w.reconcile(o)
	read := w.module.takeRequests()
	if len(read) != 1 {
		t.Fatalf("got %d requests, want 1", len(read))
	}
	if got, want := withoutVersion(t, read[0].Object), withoutVersion(t, watched.Object); got != want {
		t.Errorf("read    %s\nwatched %s", got, want)
	}
}

func withoutVersion(t *testing.T, o hostabi.Object) string {
	t.Helper()
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(o.Body); err != nil {
		t.Fatal(err)
	}
	u.SetResourceVersion("")
	data, err := u.MarshalJSON()
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestWatched_IsReadIf(t *testing.T) {
	for name, prepare := range map[string]func(*testEnv, *unstructured.Unstructured){
		"another state was seen since": func(w *testEnv, o *unstructured.Unstructured) {
			w.api.change(o, label("changed"))
			now := w.api.get(o)
			w.runner.Apply(graph.Seen{Object: graph.ObjectOf(now.GroupVersionKind(), now)}) // from a list
		},
		"it was long ago": func(w *testEnv, _ *unstructured.Unstructured) { w.advance(5 * minEvaluationInterval) },
		"it was evaluated": func(w *testEnv, o *unstructured.Unstructured) {
			w.module.returns(waitVerdict)
			w.reconcile(o)
			w.api.countRequests("")
			w.watch(o)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w, o := newWatchedEnv(t, needs(policies.NeedsMetadata))
			w.watch(o)
			prepare(w, o)
			w.reconcile(o)
			if got := w.api.countRequests("GET /api/v1/namespaces/ns/configmaps"); got != 1 {
				t.Errorf("got %d reads, want 1", got)
			}
		})
	}
}
