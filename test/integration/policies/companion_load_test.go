package policies

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/keystore"
	"github.com/gleaner-dev/gleaner/operator/run"
)

// writeRecorder records the writes that a collector sends.
type writeRecorder struct {
	mu    sync.Mutex // covers paths
	paths []string
}

// wrap wraps a transport to record its writes. An access review is not a write, though it is a POST.
func (w *writeRecorder) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripperFunc(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "reviews") {
			w.mu.Lock()
			w.paths = append(w.paths, r.Method+" "+r.URL.Path)
			w.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

func (w *writeRecorder) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.paths
}

type roundTripperFunc func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t roundTripperFunc) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// TestNoPolicy_WritesNothing: the Secret with the keys, which an installation
// creates once, exists by then.
func TestNoPolicy_WritesNothing(t *testing.T) {
	o := newDedicatedEnv(t)
	secrets := o.objects.Resource(resources["Secret"]).Namespace(metav1.NamespaceSystem)
	o.eventually(func() error {
		_, err := secrets.Get(t.Context(), keystore.SecretName, metav1.GetOptions{})
		return err
	})
	o.stopOperator()
	o.config.Wrap((&writeRecorder{}).wrap) // the writes of the first collector are not checked
	var w writeRecorder
	o.config.Wrap(w.wrap)
	o.startOperatorWith(func(l *run.Options) { l.CanaryTimeout = 0 }) // canaries are writes, as documented in docs/companion.md
	for _, how := range []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
	} {
		owner, another := o.createConfigMap("owner"), o.createConfigMap("another")
		middle := o.createObject("Secret", "middle", nil, owner)
		below, shared, left := o.createConfigMap("below", middle), o.createConfigMap("shared", owner, another), o.createConfigMap("left", owner)
		o.eventually(func() error {
			for _, object := range []*unstructured.Unstructured{owner, middle, below, shared, left} {
				if !o.collector.HasUID(object.GetUID()) {
					return errorf("%s is not in the graph yet", object.GetName())
				}
			}
			return nil
		})
		o.deleteWithPolicy(owner, how)
		o.waitForDeletion(owner)
		if how == metav1.DeletePropagationOrphan {
			o.waitForNoOwners(left)
			o.deleteWithPolicy(middle, metav1.DeletePropagationBackground)
			o.forceDelete(left)
		}
		o.waitForDeletion(middle, below, left)
		o.forceDelete(shared)
		o.forceDelete(another)
		o.waitForDeletion(shared, another)
	}
	o.eventually(func() error { // all events have been processed
		if n := o.collector.Pending(); n != 0 {
			return errorf("%d objects are still queued", n)
		}
		return nil
	})
	if all := w.all(); len(all) != 0 {
		t.Errorf("writes without a policy: %q", all)
	}
}

func TestThousandDependents_AreKept(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(`
kind: GCPolicy
metadata: {name: keep}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	owner := w.createObject("Secret", "owner", nil)
	const many = 1000
	kept := make([]*unstructured.Unstructured, many)
	for i := range kept {
		kept[i] = w.createConfigMap(fmt.Sprintf("kept-%d", i), owner)
	}
	w.delete(owner)
	for _, o := range kept {
		w.waitForNoOwners(o)
	}
}

func TestThousandOwners_LeaveTheirDependents(t *testing.T) {
	if testing.Short() {
		t.Skip("the built-in garbage collector needs three calls for each object, and sends forty a second")
	}
	w := newEnv(t)
	w.applyPolicy(governingPolicy + `{propagate: {decision: Orphan}}`)
	const many = 1000
	owners, kept := make([]*unstructured.Unstructured, many), make([]*unstructured.Unstructured, many)
	for i := range owners {
		owners[i] = w.createObject("Secret", fmt.Sprintf("owner-%d", i), nil)
		kept[i] = w.createConfigMap(fmt.Sprintf("kept-%d", i), owners[i])
	}
	for _, o := range owners {
		w.waitForHold(o, true)
	}
	// Several requests at once, as a person's tools send them: one for all of them takes longer than
	// the API server lets a request take where the processors are busy.
	var deletions errgroup.Group
	deletions.SetLimit(10)
	background := metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}
	for _, o := range owners {
		deletions.Go(func() error { return w.client(o).Delete(t.Context(), o.GetName(), background) })
	}
	if err := deletions.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range owners {
		w.waitForDeletion(owners[i])
		w.waitForNoOwners(kept[i])
	}
}
