package collector_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/companion/reviewer"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/pause"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// saying is a policy that says the same of everything.
type saying hostabi.Decision

func (saying) Name() string { return "saying" }

func (s saying) Evaluate(context.Context, hostabi.Request) (hostabi.Verdict, error) {
	return hostabi.Verdict{Decision: hostabi.Decision(s)}, nil
}

func (s saying) EvaluateMetered(ctx context.Context, r hostabi.Request) (policies.Evaluation, error) {
	v, err := s.Evaluate(ctx, r)
	return policies.Evaluation{Verdict: v}, err
}

// nowhere is a Reader that has namespaces without labels, and no objects.
type nowhere struct{}

func (nowhere) Get(context.Context, policies.ServiceAccount, schema.GroupVersionResource, string, string) (*unstructured.Unstructured, error) {
	return nil, errors.New("nothing is read here")
}

func (nowhere) Namespace(context.Context, string) (modulecall.Namespace, error) {
	return modulecall.Namespace{}, nil
}

// overridingWorld is a world whose policy decides what becomes of the dependents of
// Secrets, whatever a client asks for.
func overridingWorld(t *testing.T, decision hostabi.Decision) *world {
	t.Helper()
	w := newWorld(t)
	w.companion = true
	w.connect()
	w.Decider.Evaluator.Reader = nowhere{}
	w.governs("secrets", hostabi.HookPropagate, decision)
	return w
}

// governs puts one more policy into force.
func (w *world) governs(resource string, hook hostabi.Hook, decision hostabi.Decision) {
	w.policies = append(w.policies, &policies.Policy{
		Name: "governs-" + resource, Rules: []policies.Rule{{Groups: []string{""}, Resources: []string{resource}}},
		Hooks: []hostabi.Hook{hook}, Evaluator: saying(decision), Needs: policies.NeedsReference, Enforce: true, OverrideExplicit: true,
	})
}

// reviewer serves the webhook that the other collector's deletes are sent to.
func (w *world) reviewer(change ...func(*reviewer.Options)) http.Handler {
	o := reviewer.Options{
		Collector: w.Collector, Store: w.store, Gate: &w.gate, Recorder: w.recorder, Types: func() *catalog.Catalog { return w.types },
		Policies: func() *policies.Set { return w.policySet() }, Listed: func() bool { return true }, Default: builtin.Policy{},
		Pauses: func() (*pause.Set, error) { return &pause.Set{}, nil },
		Now:    func() time.Time { return w.now }, Log: logr.Discard(),
	}
	for _, c := range change {
		c(&o)
	}
	return reviewer.New(o).Handler()
}

// reviewOf is the request to delete a ConfigMap with a Secret as its only owner.
func reviewOf(namespace, owner, name string) string {
	return `{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
  "uid": "1", "operation": "DELETE", "kind": {"group": "", "version": "v1", "kind": "ConfigMap"},
  "oldObject": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"namespace": "` + namespace + `", "name": "` + name + `", "uid": "u-` + name + `",
    "resourceVersion": "1000", "ownerReferences": [{"apiVersion": "v1", "kind": "Secret", "name": "owner", "uid": "` + owner + `"}]}},
  "options": {"kind": "DeleteOptions", "apiVersion": "meta.k8s.io/v1", "propagationPolicy": "Background"}}}`
}

// send sends a review, and returns the response.
func send(t *testing.T, to http.Handler, path, body string) string {
	t.Helper()
	response := httptest.NewRecorder()
	to.ServeHTTP(response, httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body)))
	return response.Body.String()
}

// mayGo asks whether the other collector may delete a ConfigMap with a Secret as its only
// owner.
func (w *world) mayGo(path string, options ...func(*reviewer.Options)) string {
	w.t.Helper()
	return send(w.t, w.reviewer(options...), path, reviewOf("shop", "u-owner", "a"))
}

// owner makes the Secret, which a client deletes in the foreground then.
func (w *world) owner(finalizers ...string) *object {
	o := w.create(words{plain: []string{"Secret", "shop/owner"}, values: map[string][]string{"uid": {"u-owner"}, "finalizers": finalizers}})
	return o
}

func (w *world) deletesInForeground(o *object) {
	w.t.Helper()
	w.delete(words{plain: []string{string(o.UID), string(metav1.DeletePropagationForeground)}})
}

func TestReview_DeniedWhileADeletedOwnerIsUnknown(t *testing.T) {
	for _, decision := range []hostabi.Decision{hostabi.DecisionOrphan, hostabi.DecisionWait} {
		for claim, learn := range map[string]func(w *world){
			"by one that has only started, and listed nothing yet": func(w *world) {
				w.deletesInForeground(w.owner(graph.Hold))
			},
			"by one whose watch is late": func(w *world) {
				o := w.owner(graph.Hold)
				w.see(o)
				w.deletesInForeground(o)
			},
		} {
			t.Run(string(decision)+" "+claim, func(t *testing.T) {
				w := overridingWorld(t, decision)
				learn(w)
				if said := w.mayGo(companion.VetoPath); !strings.Contains(said, `"allowed":false`) {
					t.Errorf("it goes: %s", said)
				}
			})
		}
	}
}

func TestReview_AllowedOnceOwnersAreGoneOrRelease(t *testing.T) {
	for claim, learn := range map[string]func(w *world){
		"an owner that there never was": func(*world) {},
		"an owner that waits for it, and that nobody holds": func(w *world) {
			w.deletesInForeground(w.owner())
		},
		"an owner whose end was watched": func(w *world) {
			o := w.owner()
			w.see(o)
			w.delete(words{plain: []string{string(o.UID), string(metav1.DeletePropagationBackground)}})
			w.seeEnd(o.UID)
		},
	} {
		t.Run(claim, func(t *testing.T) {
			w := overridingWorld(t, hostabi.DecisionOrphan)
			learn(w)
			if said := w.mayGo(companion.VetoPath); !strings.Contains(said, `"allowed":true`) {
				t.Errorf("it stays: %s", said)
			}
		})
	}
}

// If discovery of a group has failed since the start, an owner of an unknown kind may be of any
// resource in that group.
func TestOverrides_OwnerOfAnUndiscoveredKind(t *testing.T) {
	for claim, c := range map[string]struct {
		failed map[schema.GroupVersion]error
		groups []string
		want   bool
	}{
		"discovery of its group failed, and a policy governs the group":        {map[schema.GroupVersion]error{{Group: "example.com", Version: "v1"}: errors.New("down")}, []string{"example.com"}, true},
		"discovery of its group failed, and a policy governs all groups":       {map[schema.GroupVersion]error{{Group: "example.com", Version: "v1"}: errors.New("down")}, []string{policies.Wildcard}, true},
		"discovery of its group failed, and policies govern only other groups": {map[schema.GroupVersion]error{{Group: "example.com", Version: "v1"}: errors.New("down")}, []string{"apps"}, false},
		"its group was discovered, and has no such kind":                       {nil, []string{"example.com"}, false},
	} {
		t.Run(claim, func(t *testing.T) {
			w := newWorld(t)
			w.companion = true
			w.connect()
			w.governs("widgets", hostabi.HookPropagate, hostabi.DecisionOrphan)
			w.policies[len(w.policies)-1].Rules[0].Groups = c.groups
			w.types = catalog.Build(nil, nil, catalog.Settings{Failed: c.failed})
			owner := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: "u-w"}
			if got := w.Decider.Overrides(owner, "shop"); got != c.want {
				t.Errorf("a policy may override what a client requested: %t, want %t", got, c.want)
			}
		})
	}
}

// It is not in the graph, and nobody will show it.
func TestReview_IgnoredResources(t *testing.T) {
	for claim, c := range map[string]struct {
		learn func(w *world)
		goes  bool
	}{
		"an owner that is gone":                    {func(*world) {}, true},
		"an owner that a policy holds":             {func(w *world) { w.deletesInForeground(w.owner(graph.Hold)) }, false},
		"an owner that waits, and nobody holds it": {func(w *world) { w.deletesInForeground(w.owner()) }, true},
	} {
		t.Run(claim, func(t *testing.T) {
			for _, hook := range []hostabi.Hook{hostabi.HookPropagate, hostabi.HookCollect} {
				w := overridingWorld(t, hostabi.DecisionOrphan)
				if hook == hostabi.HookCollect {
					w.governs("configmaps", hook, hostabi.DecisionDelete)
				}
				core := []metav1.APIResource{
					{Name: "configmaps", Kind: "ConfigMap", Namespaced: true, Verbs: metav1.Verbs{"delete", "get", "list", "patch", "watch"}},
					{Name: "secrets", Kind: "Secret", Namespaced: true, Verbs: metav1.Verbs{"delete", "get", "list", "patch", "watch"}},
				}
				w.types = catalog.Build(nil, []*metav1.APIResourceList{{GroupVersion: "v1", APIResources: core}}, catalog.Settings{
					Ignored: map[schema.GroupResource]struct{}{{Resource: "configmaps"}: {}}, Local: map[schema.GroupVersion]bool{{Version: "v1"}: true},
				})
				w.store.Apply(graph.TypeGone{Kind: schema.GroupKind{Kind: "ConfigMap"}})
				c.learn(w)
				if said := w.mayGo(companion.VetoPath); strings.Contains(said, `"allowed":true`) != c.goes {
					t.Errorf("%s: it goes or not: %s", hook, said)
				}
			}
		})
	}
}

func TestReview_DeniedUntilThePoliciesAreRead(t *testing.T) {
	w := newWorld(t)
	read := map[string]bool{"before": true}
	covers := func(o *reviewer.Options) { o.Covers = func(fingerprint string) bool { return read[fingerprint] } }
	if said := w.mayGo(companion.VetoPath+"/before", covers); !strings.Contains(said, `"allowed":true`) {
		t.Errorf("it stays by policies that let it go: %s", said)
	}
	if said := w.mayGo(companion.VetoPath+"/now", covers); !strings.Contains(said, `"allowed":false`) || !strings.Contains(said, "have not been read yet") {
		t.Errorf("it goes by policies that are others by now: %s", said)
	}
	read["now"] = true
	if said := w.mayGo(companion.VetoPath+"/now", covers); !strings.Contains(said, `"allowed":true`) {
		t.Errorf("it stays by policies that let it go: %s", said)
	}
}

func TestReview_DeniedUntilTheGraphIsComplete(t *testing.T) {
	w := newWorld(t)
	listed := false
	complete := func(o *reviewer.Options) { o.Listed = func() bool { return listed } }
	if said := w.mayGo(companion.VetoPath, complete); !strings.Contains(said, `"allowed":false`) || !strings.Contains(said, "listed") {
		t.Errorf("it goes: %s", said)
	}
	listed = true
	if said := w.mayGo(companion.VetoPath, complete); !strings.Contains(said, `"allowed":true`) {
		t.Errorf("it stays: %s", said)
	}
}

func TestHold_OfAnObjectWithAnUnreadableOwner(t *testing.T) {
	for claim, beside := range map[string]bool{"as the only collector": false, "beside another one": true} {
		t.Run(claim, func(t *testing.T) {
			w := overridingWorld(t, hostabi.DecisionOrphan)
			w.companion = beside
			w.connect()
			w.Decider.Evaluator.Reader = nowhere{}
			o := w.create(words{plain: []string{"Secret", "shop/a"}, values: map[string][]string{"owners": {"Gone.v1.gone.example.com:owner"}}})
			w.PoliciesChanged()
			w.settle()
			if !slices.Contains(o.Finalizers, graph.Hold) {
				t.Fatalf("a policy governs it, and it has no hold, but %v", o.Finalizers)
			}
			w.policies = nil
			w.PoliciesChanged()
			w.settle()
			if len(o.Finalizers) != 0 {
				t.Errorf("no policy governs it, and it has still %v", o.Finalizers)
			}
		})
	}
}

// Reviews read the facts about an owner, and decide nothing about it.
func TestReview_LeavesTheConfirmationOfAnOwner(t *testing.T) {
	w := overridingWorld(t, hostabi.DecisionOrphan)
	o := w.owner(graph.Hold)
	w.see(o)
	w.deletesInForeground(o)
	w.catchUp()
	owner := graph.IDOf(o.UID)
	w.Gatherer.Barrier.Request(owner)
	w.barrier()
	w.mayGo(companion.VetoPath)
	if confirmed, failure := w.Gatherer.Barrier.Outcome(owner, true); !confirmed {
		t.Errorf("the owner needs another round: %s", failure)
	}
}
