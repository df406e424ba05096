package finalize

import (
	"encoding/json"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/statekey"
)

// Whoever may patch the object may write the annotation: the module, which may hold
// grants, must not take that for its own state.
func TestState_ThatSomebodyElseWroteIsNotShownToTheModule(t *testing.T) {
	for name, annotation := range map[string]string{
		"not signed": `{"uid":"UID","by":{"example.com/f":{"attempt":3,"state":{"approved":true}}}}`,
		"signed with another key": `{"uid":"UID","by":{"example.com/f":{"signature":"` +
			"0000000000000000000000000000000000000000000000000000000000000000" + `","data":{"attempt":3,"state":{"approved":true}}}}}`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.module.says(waits)
			o := w.waiting()
			w.api.change(o, func(o *unstructured.Unstructured) {
				o.SetAnnotations(map[string]string{Annotation: strings.Replace(annotation, "UID", string(o.GetUID()), 1)})
			})
			w.visit(o)
			asked := w.module.asked()
			if len(asked) != 1 || len(asked[0].State) != 0 || asked[0].Attempt != 1 {
				t.Errorf("asked: %+v; want once, without a state, in the first attempt", asked)
			}
		})
	}
}

func TestFailure_ThatSomebodyElseWroteDoesNotStand(t *testing.T) {
	w := newWorld(t)
	o := w.waiting()
	w.api.change(o, func(o *unstructured.Unstructured) {
		v := &visitor{server: w.server, f: served{Finalizer: w.finalizer()}}
		text, err := json.Marshal(map[string]any{"uid": o.GetUID(), "by": map[string]memory{entry: {Failed: "no", Of: v.identity(fingerprint(o))}}})
		if err != nil {
			t.Fatal(err)
		}
		o.SetAnnotations(map[string]string{Annotation: string(text)})
	})
	w.visit(o)
	w.is(Done, "")
}

var errNoKeys = errors.New("the Secret can't be read")

// away has the operator be without its keys.
func (w *world) away() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.keys, w.noKeys = statekey.Keys{}, errNoKeys
}

func TestState_IsNotActedOnWhileItCanNotBeVerified(t *testing.T) {
	w := newWorld(t)
	w.module.says(hostabi.Verdict{Decision: hostabi.DecisionWait, State: json.RawMessage(`{"step":1}`)})
	o := w.waiting()
	w.visit(o)
	w.module.asked()
	w.away()
	w.pass(time.Minute)
	w.module.says(isDone)
	w.after(w.visit(o), time.Second)
	w.is(Troubled, errNoKeys.Error())
	if n := len(w.module.asked()); n != 0 {
		t.Errorf("asked %d times without its state", n)
	}
	w.keeps(o)
	w.mu.Lock()
	w.keys, w.noKeys = testKeys, nil
	w.mu.Unlock()
	w.visit(o)
	if asked := w.module.asked(); len(asked) != 1 || string(asked[0].State) != `{"step":1}` {
		t.Errorf("with the keys it was asked %+v", asked)
	}
}

func TestState_ThatCanNotBeSignedIsNotWrittenAndNothingIsDone(t *testing.T) {
	w := newWorld(t)
	w.away()
	done := 0
	w.does = func(hostabi.Intent) hostabi.Result { done++; return hostabi.Result{} }
	w.module.says(hostabi.Verdict{Decision: hostabi.DecisionAct, State: json.RawMessage(`1`), Intents: []hostabi.Intent{{ID: "a", HTTP: &hostabi.HTTPIntent{Method: "POST"}}}})
	o := w.waiting()
	w.visit(o)
	w.is(Troubled, errNoKeys.Error())
	if n := w.api.asks(http.MethodPatch); n != 0 || done != 0 {
		t.Errorf("%d writes, %d intents carried out", n, done)
	}
	w.keeps(o)
}

// A module that keeps no state is none the worse for it.
func TestObjectsWithoutState_AreServedWithoutKeys(t *testing.T) {
	w := newWorld(t)
	w.away()
	w.visit(w.waiting())
	w.is(Done, "")
}
