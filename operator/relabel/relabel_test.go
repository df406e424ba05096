package relabel_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/graphstore"
	"github.com/gleaner-dev/gleaner/operator/relabel"
	"github.com/gleaner-dev/gleaner/operator/selectors"
	"github.com/gleaner-dev/gleaner/policies"
)

var (
	widget  = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	widgets = schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}
)

// world is a cluster with widgets, and what was made of it.
type world struct {
	*relabel.Relabeler
	store *graphstore.Store
	gate  gate.Gate
	index *selectors.Index
	now   time.Time
	err   error         // of lists
	took  time.Duration // by a list
	lists []string      // resource and namespace
	types *catalog.Catalog
}

func newWorld(t *testing.T, objects ...*metav1.PartialObjectMetadata) *world {
	t.Helper()
	scheme := fake.NewTestScheme()
	if err := metav1.AddMetaToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	var items []runtime.Object
	for _, o := range objects {
		items = append(items, o)
	}
	w := &world{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), types: catalogOf(true)}
	w.store = graphstore.New(func() time.Time { return w.now })
	client := fake.NewSimpleMetadataClient(scheme, items...)
	client.PrependReactor("list", "*", func(a clienttesting.Action) (bool, runtime.Object, error) {
		w.lists = append(w.lists, fmt.Sprintf("%s %q", a.GetResource().Resource, a.GetNamespace()))
		w.now = w.now.Add(w.took)
		return w.err != nil, nil, w.err
	})
	for _, o := range objects { // seen before there were policies
		w.store.Apply(graph.Seen{Object: graph.ObjectOf(widget, o)})
	}
	w.gate.Lead()
	w.gate.SetProbe(gate.Open)
	w.Relabeler = relabel.New(relabel.Options{
		Changed: func() <-chan struct{} { return nil }, Selectors: func() *selectors.Index { return w.index },
		Types: func() *catalog.Catalog { return w.types }, Gate: &w.gate, Client: client, Store: w.store,
		Now: func() time.Time { return w.now }, Log: logr.Discard(),
	})
	return w
}

func catalogOf(local bool) *catalog.Catalog {
	settings := catalog.Settings{}
	if local {
		settings.Local = map[schema.GroupVersion]bool{widget.GroupVersion(): true}
	}
	return catalog.Build(nil, []*metav1.APIResourceList{{GroupVersion: "example.com/v1", APIResources: []metav1.APIResource{
		{Name: "widgets", Kind: "Widget", Namespaced: true, Verbs: metav1.Verbs{"delete", "get", "list", "watch"}},
	}}}, settings)
}

func object(namespace, name string, set labels.Set) *metav1.PartialObjectMetadata {
	o := &metav1.PartialObjectMetadata{}
	o.SetGroupVersionKind(widget)
	o.Namespace, o.Name, o.UID, o.ResourceVersion, o.Labels = namespace, name, types.UID(namespace+"/"+name), "5", set
	return o
}

func policy(t *testing.T, namespace, name, selector string) *policies.Policy {
	t.Helper()
	parsed, err := labels.Parse(selector)
	if err != nil {
		t.Fatal(err)
	}
	return &policies.Policy{
		Namespace: namespace, Name: name, Hooks: []hostabi.Hook{hostabi.HookCollect}, ObjectSelector: parsed,
		Rules: []policies.Rule{{Groups: []string{"example.com"}, Resources: []string{"widgets"}}},
	}
}

func (w *world) apply(all ...*policies.Policy) { w.index = selectors.New(policies.NewSet(all)) }

// selects returns whether a policy selects an object, as far as is known: "yes", "no" or "unknown".
func (w *world) selects(p *policies.Policy, namespace, name string) string {
	view, _ := w.store.Lookup(graph.IDOf(types.UID(namespace + "/" + name)))
	selects, known := w.index.Scope(widgets.GroupResource(), namespace).Results(view.Object.Selection).Selects(p)
	if !known {
		return "unknown"
	}
	return map[bool]string{true: "yes", false: "no"}[selects]
}

// steps calls Step n times, when it asks for that, and returns the places that were listed.
func (w *world) steps(t *testing.T, n int) []string {
	t.Helper()
	w.lists = nil
	for range n {
		next := w.Step(t.Context())
		if next <= 0 {
			t.Fatalf("Step is to be called again after %s", next)
		}
		w.now = w.now.Add(next)
	}
	return w.lists
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s: got %s, want %s", what, got, want)
	}
}

func TestStep_LabelsObjectsForNewSelectors(t *testing.T) {
	w := newWorld(t, object("shop", "a", labels.Set{"keep": "true"}), object("bank", "b", nil))
	p := policy(t, "", "p", "keep=true")
	w.apply(p)
	want(t, "before", w.selects(p, "shop", "a"), "unknown")
	want(t, "lists", fmt.Sprint(w.steps(t, 5)), `[widgets ""]`)
	want(t, "a", w.selects(p, "shop", "a"), "yes")
	want(t, "b", w.selects(p, "bank", "b"), "no")

	other := policy(t, "", "other", "keep!=true")
	w.apply(other)
	want(t, "after a change", w.selects(other, "shop", "a"), "unknown")
	want(t, "lists", fmt.Sprint(w.steps(t, 5)), `[widgets ""]`)
	want(t, "a", w.selects(other, "shop", "a"), "no")

	w.apply()
	want(t, "lists without policies", fmt.Sprint(w.steps(t, 5)), `[]`)
}

// What a tenant declares has only its own namespace listed.
func TestStep_PoliciesOfANamespace_ListThatNamespace(t *testing.T) {
	w := newWorld(t, object("shop", "a", nil), object("bank", "b", nil))
	p, own := policy(t, "", "p", "keep=true"), policy(t, "shop", "own", "a=1")
	w.apply(p)
	w.steps(t, 5)
	w.apply(p, own)
	want(t, "lists", fmt.Sprint(w.steps(t, 5)), `[widgets "shop"]`)
	want(t, "a", w.selects(own, "shop", "a"), "no")
	want(t, "a, by the other", w.selects(p, "shop", "a"), "no")

	w.apply(p)
	want(t, "without it", w.selects(p, "shop", "a"), "unknown")
	want(t, "lists without it", fmt.Sprint(w.steps(t, 5)), `[widgets "shop"]`)
	want(t, "a, without it", w.selects(p, "shop", "a"), "no")
}

func TestStep_ObjectsThatTheWatchHasLabeled_AreNotListed(t *testing.T) {
	w := newWorld(t)
	w.apply(policy(t, "", "p", "keep=true"))
	o := graph.ObjectOf(widget, object("shop", "a", nil))
	o.Selection = w.index.Scope(widgets.GroupResource(), "shop").Evaluate(nil)
	w.store.Apply(graph.Seen{Object: o})
	want(t, "lists", fmt.Sprint(w.steps(t, 3)), `[]`)
}

// A tenant may change its policies all the time.
func TestStep_ListsAreLimited(t *testing.T) {
	w := newWorld(t, object("shop", "a", nil), object("bank", "b", nil))
	w.took = 3 * time.Second
	began, shop := w.now, 0
	for i := 0; w.now.Sub(began) < time.Hour; i++ {
		w.apply(policy(t, "shop", "own", fmt.Sprintf("a=%d", i)), policy(t, "bank", "own", "a=1"))
		w.now = w.now.Add(min(w.Step(t.Context()), time.Second))
	}
	for _, place := range w.lists {
		if place == `widgets "shop"` {
			shop++
		}
	}
	if !slices.Contains(w.lists, `widgets "bank"`) || shop < 10 {
		t.Errorf("got %d lists of shop among %d", shop, len(w.lists))
	}
	if spent := time.Duration(len(w.lists)) * w.took; spent > time.Hour/20 {
		t.Errorf("an hour had %d lists of %s each, want a twentieth of the time at most", len(w.lists), w.took)
	}
}

func TestStep_AfterAFailure_IsRetried(t *testing.T) {
	w := newWorld(t, object("shop", "a", nil))
	p := policy(t, "", "p", "keep=true")
	w.apply(p)
	w.err = errors.New("no answer")
	want(t, "lists", fmt.Sprint(w.steps(t, 1)), `[widgets ""]`)
	want(t, "after a failure", w.selects(p, "shop", "a"), "unknown")
	w.err = nil
	want(t, "lists afterward", fmt.Sprint(w.steps(t, 5)), `[widgets ""]`)
	want(t, "a", w.selects(p, "shop", "a"), "no")
}

func TestStep_WithoutNeed_ListsNothing(t *testing.T) {
	for name, change := range map[string]func(*world){
		"no policies yet":          func(w *world) { w.index = nil },
		"the gate is closed":       func(w *world) { w.gate.Follow() },
		"an aggregated API server": func(w *world) { w.types = catalogOf(false) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, object("shop", "a", nil))
			w.apply(policy(t, "", "p", "keep=true"))
			change(w)
			want(t, "lists", fmt.Sprint(w.steps(t, 3)), `[]`)
		})
	}
}

func TestRun_EndsWithItsContext(t *testing.T) {
	w := newWorld(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := w.Run(ctx); err != nil {
		t.Error(err)
	}
}
