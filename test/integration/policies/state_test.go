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
	"github.com/gleaner-dev/gleaner/operator/objectstate"
)

const finalizerState = "gleaner.dev/finalizers"

// annotate writes an annotation, as any user could who may patch the object.
func (w *env) annotate(o *unstructured.Unstructured, name, text string) {
	w.Helper()
	w.patch(o, `{"metadata": {"annotations": {"`+name+`": `+quoteJSON(text)+`}}}`)
}

// waitForAnnotation waits until an object's annotation contains a text.
func (w *env) waitForAnnotation(o *unstructured.Unstructured, name, text string) string {
	w.Helper()
	var found string
	w.eventually(func() error {
		if found = w.get(o).GetAnnotations()[name]; !strings.Contains(found, text) {
			return errorf("%s of %s is %q; %s", name, o.GetName(), found, w.describeDecisions(o))
		}
		return nil
	})
	return found
}

// A Finalizer's module may have grants that users who may patch the object do not have.
func TestFinalizerState_IfForged_IsIgnored(t *testing.T) {
	w := newEnv(t)
	w.applyFinalizer("approved", `finalize := {"decision": "Done"} if input.state.approved
else := {"decision": "Wait", "after": "1s", "state": {"waiting": input.attempt}}`, "")
	o := w.createWithFinalizers("o", w.finalizerName("approved"))
	w.delete(o)
	signed := w.waitForAnnotation(o, finalizerState, `"waiting"`)
	for claim, forged := range map[string]string{
		"without a signature":                 `{"uid": "` + string(o.GetUID()) + `", "by": {"` + w.finalizerName("approved") + `": {"attempt": 1, "state": {"approved": true}}}}`,
		"with the signature of another state": strings.Replace(signed, `"waiting"`, `"approved"`, 1),
	} {
		w.annotate(o, finalizerState, forged)
		// The operator ignores it, and overwrites it.
		w.waitForAnnotation(o, finalizerState, `"waiting"`)
		if got := w.get(o).GetFinalizers(); len(got) != 1 {
			t.Errorf("%s: released by a forged state: %v", claim, got)
		}
	}
}

// A decision in the state annotation is completed, whatever the policy decides now.
func TestDecision_IfForged_IsIgnored(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(governingPolicy + `{propagate: {decision: Wait, after: 1s}}`)
	owner := w.createHeldSecret()
	dependent := w.createConfigMap("dependent", owner)
	w.delete(owner)
	w.waitForDecision(owner, "PolicyWaiting")
	w.eventually(func() error {
		if w.stateOf(owner).UID == "" {
			return errorf("state annotation is missing")
		}
		return nil
	})
	live := w.get(owner)
	forged := objectstate.State{UID: live.GetUID(), ReferencesHash: objectstate.HashReferences(live.GetOwnerReferences()), Propagation: &objectstate.Propagation{
		Policy: "ClusterGCPolicy admins", Decision: "Background", Requested: "Unspecified",
	}}
	for _, text := range []string{forged.String(), `{"signature": "` + strings.Repeat("0", 64) + `", "data": ` + forged.String() + `}`} {
		w.annotate(owner, objectstate.Annotation, text)
		w.eventually(func() error {
			if w.get(owner).GetName() == "" {
				t.Fatal("the forged decision was carried out")
			}
			if w.stateOf(owner).UID == "" {
				return errorf("forged decision still exists")
			}
			return nil
		})
	}
	if w.get(dependent).GetName() == "" {
		t.Error("dependent is gone")
	}
}

// Without its keys the operator neither trusts nor writes state; with them it
// continues. A replaced key verifies signatures for as long as it is kept.
func TestState_WithoutKeys_IsKept_AndSurvivesRotation(t *testing.T) {
	o := newOperatorEnv(t)
	o.applyFinalizer("second", `finalize := {"decision": "Done"} if input.state.first
else := {"decision": "Wait", "after": "2s", "state": {"first": true}}`, "")
	object := o.createWithFinalizers("o", o.finalizerName("second"))
	o.stopOperator() // so that nothing happens before the keys are replaced
	o.delete(object)
	o.startOperator()
	o.waitForAnnotation(object, finalizerState, `"first"`)
	o.stopOperator()
	client := o.objects.Resource(resources["Secret"]).Namespace(metav1.NamespaceSystem)
	secret, err := client.Get(t.Context(), keystore.SecretName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	key, _, _ := unstructured.NestedString(secret.Object, "data", "current")
	o.patch(secret, `{"data": {"current": "c2hvcnQ="}}`)
	o.startOperator()
	o.eventually(func() error {
		for _, e := range o.collector.Records(object.GetUID()) {
			if strings.Contains(e.Error, keystore.SecretName) {
				return nil
			}
		}
		return errorf("%s", o.describeDecisions(object))
	})
	if got := o.get(object).GetFinalizers(); len(got) != 1 {
		t.Fatalf("object was released by unverified state: %v", got)
	}
	o.patch(secret, `{"data": {"current": "`+strings.Repeat("QUJD", 16)+`", "previous": "`+key+`"}}`)
	o.waitForDeletion(object)
}

// requestCounter counts requests by their paths.
type requestCounter struct {
	mu    sync.Mutex // covers count
	count map[string]int
}

func newRequestCounter() *requestCounter { return &requestCounter{count: map[string]int{}} }

// countingTransport is a transport that counts the requests with a method.
type countingTransport struct {
	*requestCounter
	method string
	next   http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (w countingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == w.method {
		w.mu.Lock()
		w.count[r.URL.Path]++
		w.mu.Unlock()
	}
	return w.next.RoundTrip(r)
}

// of returns the number of requests for an object.
func (w *requestCounter) of(o *unstructured.Unstructured) (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for path, count := range w.count {
		if strings.HasSuffix(path, "/"+o.GetName()) && strings.Contains(path, "/namespaces/"+o.GetNamespace()+"/") {
			n += count
		}
	}
	return n
}

// Without a limit, a wait of 1ms with changing state came to 129 writes a second.
func TestWait_OfAMillisecond_IsRateLimited(t *testing.T) {
	o := newOperatorEnv(t)
	o.stopOperator()
	counted := newRequestCounter()
	o.config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return countingTransport{counted, http.MethodPatch, next}
	})
	o.startOperator()
	const rule = ` := {"decision": "Wait", "after": "1ms", "state": {"n": input.attempt}}`
	o.applyFinalizer("flood", "finalize"+rule, "")
	o.applyModule("flood-collect", "collect"+rule)
	o.applyPolicy(`
kind: GCPolicy
metadata: {name: flood}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: flood-collect}
  needs: Reference
  mode: Enforce`)
	finalized, owner := o.createWithFinalizers("finalized", o.finalizerName("flood")), o.createConfigMap("owner")
	collected := o.createConfigMap("collected", owner)
	o.delete(finalized)
	o.delete(owner)
	for object, name := range map[*unstructured.Unstructured]string{finalized: finalizerState, collected: objectstate.Annotation} {
		o.waitForAnnotation(object, name, `"n"`)
		began, before := time.Now(), counted.of(object)
		o.eventually(func() error {
			if n := counted.of(object) - before; n < 5 {
				return errorf("state was written %d times", n)
			}
			return nil
		})
		if n, took := counted.of(object)-before, time.Since(began); float64(n) > took.Seconds()+2 {
			t.Errorf("the state of %s was written %d times in %s; want once a second at most", object.GetName(), n, took)
		}
	}
}
