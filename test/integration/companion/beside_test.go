package policies

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/operator/keystore"
	"github.com/gleaner-dev/gleaner/operator/loop"
)

// written are the writes that a collector sends.
type written struct {
	mu    sync.Mutex // covers paths
	paths []string
}

// watch has a transport tell of its writes. A review is none, though it is a POST.
func (w *written) watch(next http.RoundTripper) http.RoundTripper {
	return transport(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodGet && !strings.HasSuffix(r.URL.Path, "reviews") {
			w.mu.Lock()
			w.paths = append(w.paths, r.Method+" "+r.URL.Path)
			w.mu.Unlock()
		}
		return next.RoundTrip(r)
	})
}

func (w *written) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.paths
}

type transport func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (t transport) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }

// TestWithoutAPolicyNothingIsWritten: what an installation creates once, the Secret with its
// keys, is there by then.
func TestWithoutAPolicyNothingIsWritten(t *testing.T) {
	o := newOperation(t)
	secrets := o.objects.Resource(resources["Secret"]).Namespace(metav1.NamespaceSystem)
	o.eventually(func() error {
		_, err := secrets.Get(t.Context(), keystore.SecretName, metav1.GetOptions{})
		return err
	})
	o.end()
	o.config.Wrap((&written{}).watch) // the first one is not looked at
	var w written
	o.config.Wrap(w.watch)
	o.startWith(func(l *loop.Options) { l.CanaryTimeout = 0 }) // canaries are written, and say so in docs/companion.md
	for _, how := range []metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
	} {
		owner, another := o.make("owner"), o.make("another")
		middle := o.object("Secret", "middle", nil, owner)
		below, shared, left := o.make("below", middle), o.make("shared", owner, another), o.make("left", owner)
		o.eventually(func() error {
			for _, object := range []*unstructured.Unstructured{owner, middle, below, shared, left} {
				if !o.collector.HasUID(object.GetUID()) {
					return errorf("%s is not in the graph yet", object.GetName())
				}
			}
			return nil
		})
		o.deleteBy(owner, how)
		o.goes(owner)
		if how == metav1.DeletePropagationOrphan {
			o.free(left)
			o.deleteBy(middle, metav1.DeletePropagationBackground)
			o.remove(left)
		}
		o.goes(middle, below, left)
		o.remove(shared)
		o.remove(another)
		o.goes(shared, another)
	}
	o.eventually(func() error { // it has seen the end of all that
		if n := o.collector.Pending(); n != 0 {
			return errorf("%d objects are still looked at", n)
		}
		return nil
	})
	if all := w.all(); len(all) != 0 {
		t.Errorf("written without a policy: %q", all)
	}
}

func TestAThousandDependentsAreKept(t *testing.T) {
	w := newWorld(t)
	w.policy(`
kind: GCPolicy
metadata: {name: keep}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`)
	owner := w.object("Secret", "owner", nil)
	const many = 1000
	kept := make([]*unstructured.Unstructured, many)
	for i := range kept {
		kept[i] = w.make(fmt.Sprintf("kept-%d", i), owner)
	}
	w.delete(owner)
	for _, o := range kept {
		w.free(o)
	}
}

func TestAThousandOwnersThatAreDeletedAtOnceLeaveTheirDependentsBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("the other collector takes three calls for each, and sends forty in a second")
	}
	w := newWorld(t)
	w.policy(governing + `{propagate: {decision: Orphan}}`)
	const many = 1000
	owners, kept := make([]*unstructured.Unstructured, many), make([]*unstructured.Unstructured, many)
	for i := range owners {
		owners[i] = w.object("Secret", fmt.Sprintf("owner-%d", i), nil)
		kept[i] = w.make(fmt.Sprintf("kept-%d", i), owners[i])
	}
	for _, o := range owners {
		w.held(o, true)
	}
	secrets := w.objects.Resource(resources["Secret"]).Namespace(w.ns)
	background := metav1.DeletePropagationBackground
	if err := secrets.DeleteCollection(t.Context(), metav1.DeleteOptions{PropagationPolicy: &background}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for i := range owners {
		w.goes(owners[i])
		w.free(kept[i])
	}
}
