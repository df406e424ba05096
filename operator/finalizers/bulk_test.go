package finalizers

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// List implements bulkread.Lister: it lists the ConfigMaps of the fake API.
func (w *testEnv) List(_ context.Context, _ schema.GroupVersionResource, _, _ string, _, _ int) (page bulkread.Page, err error) {
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	for at, o := range w.api.objects {
		if !strings.Contains(at, "/configmaps/") {
			continue
		}
		text, err := o.MarshalJSON()
		if err != nil {
			return page, err
		}
		page.Items = append(page.Items, bulkread.Item{Name: o.GetName(), UID: o.GetUID(), ResourceVersion: o.GetResourceVersion(), JSON: text})
	}
	return page, nil
}

// createBacklog creates ConfigMaps that wait for the finalizer, and has them listed: by those that
// are read first, one by one. It returns the others.
func (w *testEnv) createBacklog(n int) (unread []*unstructured.Unstructured) {
	w.types = catalog.Build(nil, []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: []metav1.APIResource{
		{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"delete", "get", "list", "patch", "watch"}},
	}}}, catalog.Settings{Local: map[schema.GroupVersion]bool{{Version: "v1"}: true}})
	w.runner.Bulk = bulkread.New(w, w.now)
	w.restart(w.controller.finalizer().Finalizer)
	const readFirst = 20
	var all []*unstructured.Unstructured
	for i := range n + readFirst + 1 {
		o := newObject("ConfigMap", "ns", fmt.Sprintf("o-%03d", i), entry)
		o.SetDeletionTimestamp(&metav1.Time{Time: start})
		all = append(all, w.api.create(o))
	}
	for _, o := range all[:readFirst] {
		w.reconcileSeen(o)
	}
	probe := graph.ObjectOf(all[readFirst].GroupVersionKind(), all[readFirst])
	resource, _ := w.types.Preferred(probe.Kind.GroupKind())
	devtest.Eventually(w, timeout, func() error {
		wanted := bulkread.Wanted{Resource: resource, Namespace: probe.Namespace, Name: probe.Name, UID: probe.UID, ResourceVersion: probe.ResourceVersion}
		if _, ok := w.runner.Bulk.Get(wanted); !ok {
			return errors.New("not listed")
		}
		return nil
	})
	w.api.countRequests("")
	return all[readFirst+1:]
}

// reconcileSeen reconciles an object that a watch has shown.
func (w *testEnv) reconcileSeen(o *unstructured.Unstructured) {
	w.controller.enqueuePending(graph.ObjectOf(o.GroupVersionKind(), o))
	w.reconcile(o)
}

func TestBacklog_IsListed(t *testing.T) {
	w := newTestEnv(t)
	for _, o := range w.createBacklog(50) {
		w.reconcileSeen(o)
		w.wantOutcome(Done, "")
	}
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	for _, request := range w.api.requests {
		if !strings.HasPrefix(request, "PATCH ") {
			t.Errorf("got %s, want no more than one PATCH for each object", request)
		}
	}
	if len(w.api.requests) != 50 {
		t.Errorf("got %d requests, want 50", len(w.api.requests))
	}
}

// What is listed may be older than what the module has written since.
func TestBacklog_IsReadAgainOnceEvaluated(t *testing.T) {
	w := newTestEnv(t)
	o := w.createBacklog(1)[0]
	w.controller.ensurePending(keyOf(graph.ObjectOf(o.GroupVersionKind(), o))) // not seen in any version
	w.module.returns(hostabi.Verdict{Decision: hostabi.DecisionWait, After: waitVerdict.After, State: []byte(`"begun"`)})
	w.reconcile(o)
	w.wantOutcome(Waiting, "")
	w.module.takeRequests()
	w.api.change(o, label("changed"))
	w.advance(minEvaluationInterval)
	w.reconcileSeen(o) // as in an event that is late
	requests := w.module.takeRequests()
	if len(requests) != 1 || string(requests[0].State) != `"begun"` {
		t.Errorf("got requests %+v, want one with the state that was written", requests)
	}
}

// A list that has the object in another version than the last one that was seen is not used.
func TestBacklog_IsReadIfChangedSinceListed(t *testing.T) {
	w := newTestEnv(t)
	o := w.createBacklog(1)[0]
	w.api.change(o, label("changed"))
	w.reconcileSeen(w.api.get(o))
	w.wantOutcome(Done, "")
	requests := w.module.takeRequests()
	if labels := requests[len(requests)-1].Object.Metadata.Labels; labels == nil {
		t.Error("the module got the object as it was listed")
	}
	if n := w.api.countRequests("GET"); n != 1 {
		t.Errorf("got %d reads, want 1", n)
	}
}
