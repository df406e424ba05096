package policies

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/operator/keystore"
	"github.com/gleaner-dev/gleaner/operator/memo"
)

const finalizerState = "gleaner.dev/finalizers"

// annotate has somebody write an annotation who may patch the object.
func (w *world) annotate(o *unstructured.Unstructured, name, text string) {
	w.Helper()
	w.patch(o, `{"metadata": {"annotations": {"`+name+`": `+quoted(text)+`}}}`)
}

// stateHas waits until an object's annotation has a text.
func (w *world) stateHas(o *unstructured.Unstructured, name, text string) string {
	w.Helper()
	var found string
	w.eventually(func() error {
		if found = w.get(o).GetAnnotations()[name]; !strings.Contains(found, text) {
			return errorf("%s of %s is %q; %s", name, o.GetName(), found, w.decisions(o))
		}
		return nil
	})
	return found
}

// A module of a Finalizer may hold grants that whoever patches the object has not.
func TestFinalizerState_ThatAUserForgesIsNotBelieved(t *testing.T) {
	w := newWorld(t)
	w.finalizer("approved", `finalize := {"decision": "Done"} if input.state.approved
else := {"decision": "Wait", "after": "1s", "state": {"waiting": input.attempt}}`, "")
	o := w.carrying("o", w.entry("approved"))
	w.delete(o)
	signed := w.stateHas(o, finalizerState, `"waiting"`)
	for claim, forged := range map[string]string{
		"without a signature":        `{"uid": "` + string(o.GetUID()) + `", "by": {"` + w.entry("approved") + `": {"attempt": 1, "state": {"approved": true}}}}`,
		"with that of another state": strings.Replace(signed, `"waiting"`, `"approved"`, 1),
	} {
		w.annotate(o, finalizerState, forged)
		// The operator takes it for nothing, and writes its own once more.
		w.stateHas(o, finalizerState, `"waiting"`)
		if got := w.get(o).GetFinalizers(); len(got) != 1 {
			t.Errorf("%s: released by a forged state: %v", claim, got)
		}
	}
}

// A decision that was written down is carried out, whatever the policy says now.
func TestDecision_ThatAUserForgesIsNotCarriedOut(t *testing.T) {
	w := newWorld(t)
	w.policy(governing + `{propagate: {decision: Wait, after: 1s}}`)
	owner := w.secret()
	dependent := w.make("dependent", owner)
	w.delete(owner)
	w.decided(owner, "WaitsByPolicy")
	w.eventually(func() error {
		if w.remembered(owner).UID == "" {
			return errorf("nothing is remembered")
		}
		return nil
	})
	live := w.get(owner)
	forged := memo.Memo{UID: live.GetUID(), References: memo.Hash(live.GetOwnerReferences()), Propagation: &memo.Propagation{
		Policy: "ClusterGCPolicy admins", Decision: "Background", Requested: "Unspecified",
	}}
	for _, text := range []string{forged.String(), `{"signature": "` + strings.Repeat("0", 64) + `", "data": ` + forged.String() + `}`} {
		w.annotate(owner, memo.Annotation, text)
		w.eventually(func() error {
			if w.get(owner).GetName() == "" {
				t.Fatal("the forged decision was carried out")
			}
			if w.remembered(owner).UID == "" {
				return errorf("the forged decision is still there")
			}
			return nil
		})
	}
	if w.get(dependent).GetName() == "" {
		t.Error("the dependent is gone")
	}
}

// Without its keys the operator neither believes nor writes state, and with them it
// goes on where it was. A key that is replaced verifies for as long as it is kept.
func TestState_IsHeldWithoutKeysAndOutlivesTheirRotation(t *testing.T) {
	o := newOperation(t)
	o.finalizer("second", `finalize := {"decision": "Done"} if input.state.first
else := {"decision": "Wait", "after": "2s", "state": {"first": true}}`, "")
	object := o.carrying("o", o.entry("second"))
	o.end() // so that nothing happens before the keys are what they are to be
	o.delete(object)
	o.start()
	o.stateHas(object, finalizerState, `"first"`)
	o.end()
	client := o.objects.Resource(resources["Secret"]).Namespace(metav1.NamespaceSystem)
	secret, err := client.Get(t.Context(), keystore.SecretName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	key, _, _ := unstructured.NestedString(secret.Object, "data", "current")
	o.patch(secret, `{"data": {"current": "c2hvcnQ="}}`)
	o.start()
	o.eventually(func() error {
		for _, e := range o.collector.Records(object.GetUID()) {
			if strings.Contains(e.Error, keystore.SecretName) {
				return nil
			}
		}
		return errorf("%s", o.decisions(object))
	})
	if got := o.get(object).GetFinalizers(); len(got) != 1 {
		t.Fatalf("it was released by a state that could not be verified: %v", got)
	}
	o.patch(secret, `{"data": {"current": "`+strings.Repeat("QUJD", 16)+`", "previous": "`+key+`"}}`)
	o.goes(object)
}

// patches counts the patches of objects by their names.
type patches struct {
	mu    sync.Mutex // covers count
	count map[string]int
}

// counting is a transport whose patches are counted.
type counting struct {
	*patches
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (w counting) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodPatch {
		w.mu.Lock()
		w.count[r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]]++
		w.mu.Unlock()
	}
	return w.next.RoundTrip(r)
}

func (w *patches) of(o *unstructured.Unstructured) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.count[o.GetName()]
}

// A wait of 1ms with another state each time came to 129 writes a second.
func TestWait_OfAMillisecondWithChangingStateIsNoFlood(t *testing.T) {
	o := newOperation(t)
	o.end()
	counted := &patches{count: map[string]int{}}
	o.config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{counted, next} })
	o.start()
	const rule = ` := {"decision": "Wait", "after": "1ms", "state": {"n": input.attempt}}`
	o.finalizer("flood", "finalize"+rule, "")
	o.module("flood-collect", "collect"+rule)
	o.policy(`
kind: GCPolicy
metadata: {name: flood}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: flood-collect}
  needs: Reference
  mode: Enforce`)
	finalized, owner := o.carrying("finalized", o.entry("flood")), o.make("owner")
	collected := o.make("collected", owner)
	o.delete(finalized)
	o.delete(owner)
	for object, name := range map[*unstructured.Unstructured]string{finalized: finalizerState, collected: memo.Annotation} {
		o.stateHas(object, name, `"n"`)
		began, before := time.Now(), counted.of(object)
		o.eventually(func() error {
			if n := counted.of(object) - before; n < 5 {
				return errorf("its state was written %d times", n)
			}
			return nil
		})
		if n, took := counted.of(object)-before, time.Since(began); float64(n) > took.Seconds()+2 {
			t.Errorf("the state of %s was written %d times in %s; want once a second at most", object.GetName(), n, took)
		}
	}
}
