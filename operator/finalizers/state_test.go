package finalizers

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/statekey"
)

// Everyone who may patch the object may write the annotation: the module, which may have
// grants, must not receive it as its own state.
func TestState_UnsignedIsNotPassedToTheModule(t *testing.T) {
	for name, annotation := range map[string]string{
		"not signed": `{"uid":"UID","by":{"example.com/f":{"attempt":3,"state":{"approved":true}}}}`,
		"signed with another key": `{"uid":"UID","by":{"example.com/f":{"signature":"` +
			"0000000000000000000000000000000000000000000000000000000000000000" + `","data":{"attempt":3,"state":{"approved":true}}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t)
			w.module.returns(waitVerdict)
			o := w.createPending()
			w.api.change(o, func(o *unstructured.Unstructured) {
				o.SetAnnotations(map[string]string{objectstate.FinalizersAnnotation: strings.Replace(annotation, "UID", string(o.GetUID()), 1)})
			})
			w.reconcile(o)
			requests := w.module.takeRequests()
			if len(requests) != 1 || len(requests[0].State) != 0 || requests[0].Attempt != 1 {
				t.Errorf("requests: %+v; want one, without state, with attempt 1", requests)
			}
		})
	}
}

func TestFailure_UnsignedIsIgnored(t *testing.T) {
	w := newTestEnv(t)
	o := w.createPending()
	w.api.change(o, func(o *unstructured.Unstructured) {
		f := activeFinalizer{Finalizer: w.finalizer()}
		text, err := json.Marshal(map[string]any{"uid": o.GetUID(), "by": map[string]objectstate.FinalizerState{entry: {Failed: "no", FailedInput: f.inputIdentity(fingerprintOf(o))}}})
		if err != nil {
			t.Fatal(err)
		}
		o.SetAnnotations(map[string]string{objectstate.FinalizersAnnotation: string(text)})
	})
	w.reconcile(o)
	w.wantOutcome(Done, "")
}

var errNoKeys = errors.New("the Secret can't be read")

// withoutKeys makes the operator's keys unavailable.
func (w *testEnv) withoutKeys() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys, w.keysErr = statekey.Keys{}, errNoKeys
}

func TestState_UnverifiableStopsEvaluation(t *testing.T) {
	w := newTestEnv(t)
	w.module.returns(hostabi.Verdict{Decision: hostabi.DecisionWait, State: json.RawMessage(`{"step":1}`)})
	o := w.createPending()
	w.reconcile(o)
	w.module.takeRequests()
	w.withoutKeys()
	w.advance(time.Minute)
	w.module.returns(doneVerdict)
	w.wantDelay(w.reconcile(o), time.Second)
	w.wantOutcome(HostError, errNoKeys.Error())
	if n := len(w.module.takeRequests()); n != 0 {
		t.Errorf("evaluated %d times without its state", n)
	}
	w.wantFinalizer(o)
	w.mu.Lock()
	w.keys, w.keysErr = testKeys, nil
	w.mu.Unlock()
	w.reconcile(o)
	if requests := w.module.takeRequests(); len(requests) != 1 || string(requests[0].State) != `{"step":1}` {
		t.Errorf("requests with the keys: %+v", requests)
	}
}

func TestState_UnsignableStopsWritesAndIntents(t *testing.T) {
	w := newTestEnv(t)
	w.withoutKeys()
	done := 0
	w.execute = func(hostabi.Intent) hostabi.Result { done++; return hostabi.Result{} }
	w.module.returns(hostabi.Verdict{Decision: hostabi.DecisionAct, State: json.RawMessage(`1`), Intents: []hostabi.Intent{{ID: "a", HTTP: &hostabi.HTTPIntent{Method: "POST"}}}})
	o := w.createPending()
	w.reconcile(o)
	w.wantOutcome(HostError, errNoKeys.Error())
	if n := w.api.countRequests(http.MethodPatch); n != 0 || done != 0 {
		t.Errorf("%d writes, %d intents carried out", n, done)
	}
	w.wantFinalizer(o)
}

// Modules without state do not need the keys.
func TestObjectsWithoutState_NeedNoKeys(t *testing.T) {
	w := newTestEnv(t)
	w.withoutKeys()
	w.reconcile(w.createPending())
	w.wantOutcome(Done, "")
}
