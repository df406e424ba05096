package finalizers

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/writer"
	"github.com/gleaner-dev/gleaner/policies"
)

// requestAll has the module request an intent of each kind, save a state, and return Done.
func requestAll(w *testEnv) {
	w.module.respond = func(r hostabi.Request) (hostabi.Verdict, error) {
		if r.Round > 1 {
			return doneVerdict, nil
		}
		return hostabi.Verdict{Decision: hostabi.DecisionAct, State: []byte(`{"n":1}`), Intents: []hostabi.Intent{
			{ID: "read", HTTP: &hostabi.HTTPIntent{Method: http.MethodGet, URL: "https://s3.example.com/b"}},
			{ID: "event", Event: &hostabi.EventIntent{Reason: "Emptying"}},
			{ID: "delete", HTTP: &hostabi.HTTPIntent{Method: http.MethodDelete, URL: "https://s3.example.com/b"}},
		}}, nil
	}
}

// executed has intents succeed, and returns the list of those that were carried out.
func executed(w *testEnv) *[]string {
	var ids []string
	w.execute = func(i hostabi.Intent) hostabi.Result { ids = append(ids, i.ID); return hostabi.Result{} }
	return &ids
}

func TestWrites_PassThroughTheSteps(t *testing.T) {
	w := newTestEnv(t, func(f *policies.Finalizer) { f.Attach = true })
	requestAll(w)
	ids := executed(w)
	w.reconcile(w.api.create(newObject("ConfigMap", "ns", "new")))
	w.reconcile(w.createPending())
	want := []string{"finalizers: protects ConfigMap new", "finalizers: state ConfigMap o", "finalizers: external ConfigMap o", "finalizers: releases ConfigMap o"}
	if diff := cmp.Diff(want, w.writes); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"read", "event", "delete"}, *ids); diff != "" {
		t.Error(diff)
	}
	w.wantOutcome(Done, "")
}

// stopAt stops the writes with an effect, as long as it returns true.
func (w *testEnv) stopAt(effect writer.Effect, with writer.Admission) {
	w.admit = func(write writer.Write) writer.Admission {
		if write.Effect == effect {
			return with
		}
		return writer.Admission{Outcome: writer.Pass}
	}
}

func TestWrite_ThatHasToWait_IsRetriedAndNotRecorded(t *testing.T) {
	for _, effect := range []writer.Effect{writer.State, writer.External, writer.Releases} {
		t.Run(string(effect), func(t *testing.T) {
			w := newTestEnv(t)
			requestAll(w)
			ids := executed(w)
			w.stopAt(effect, writer.Admission{Outcome: writer.Wait, Reason: "not now"})
			o := w.createPending()
			w.wantDelay(w.reconcile(o), minRetryDelay)
			w.wantFinalizer(o)
			if n := w.lastOutcome(); n.Reason != "" {
				t.Errorf("outcome: %+v", n)
			}
			if sent := slices.Contains(*ids, "delete"); sent != (effect == writer.Releases) {
				t.Errorf("carried out: %v", *ids)
			}
			w.admit = nil
			w.reconcile(o)
			w.wantOutcome(Done, "")
		})
	}
}

func TestWrite_ThatHasToWait_IsDecidedAgainWhenTheStepSays(t *testing.T) {
	for _, effect := range []writer.Effect{writer.State, writer.External, writer.Releases} {
		w := newTestEnv(t)
		requestAll(w)
		executed(w)
		w.stopAt(effect, writer.Admission{Outcome: writer.Wait, Reason: "paused", Retry: time.Hour})
		w.wantDelay(w.reconcile(w.createPending()), time.Hour)
	}
}

// A pause may be limited to a finalizer.
func TestWrites_SayWhichFinalizerDecided(t *testing.T) {
	w := newTestEnv(t, func(f *policies.Finalizer) { f.Attach = true })
	requestAll(w)
	executed(w)
	var by []string
	w.admit = func(write writer.Write) writer.Admission {
		by = append(by, write.Cause.Policy)
		return writer.Admission{Outcome: writer.Pass}
	}
	w.reconcile(w.api.create(newObject("ConfigMap", "ns", "new")))
	w.reconcile(w.createPending())
	want := slices.Repeat([]string{w.finalizer().String()}, 4)
	if diff := cmp.Diff(want, by); diff != "" {
		t.Errorf("decided by (-want +got):\n%s", diff)
	}
}

func TestAttach_ThatHasToWait_IsRetriedAndNotRecorded(t *testing.T) {
	w := newTestEnv(t, func(f *policies.Finalizer) { f.Attach = true })
	w.stopAt(writer.Protects, writer.Admission{Outcome: writer.Wait})
	o := w.api.create(newObject("ConfigMap", "ns", "new"))
	w.wantDelay(w.reconcile(o), minRetryDelay)
	if n := w.lastOutcome(); n.Reason != "" || len(w.api.get(o).GetFinalizers()) != 0 {
		t.Errorf("outcome: %+v", n)
	}
}

func TestRefusedWrite_IsRecordedAsAnError(t *testing.T) {
	for _, effect := range []writer.Effect{writer.State, writer.External, writer.Releases} {
		for _, answer := range []writer.Admission{{Outcome: writer.Refuse, Reason: "never"}, {Reason: "never"}} {
			w := newTestEnv(t)
			requestAll(w)
			ids := executed(w)
			w.stopAt(effect, answer)
			o := w.createPending()
			w.wantDelay(w.reconcile(o), time.Second)
			w.wantFinalizer(o)
			w.wantOutcome(HostError, "stopped: never")
			if sent := slices.Contains(*ids, "delete"); sent != (effect == writer.Releases) {
				t.Errorf("%s: carried out: %v", effect, *ids)
			}
		}
	}
}

// A step may find that the object differs from what was decided about: it is read again.
func TestChangedObject_IsReadAgainBeforeAWrite(t *testing.T) {
	w := newTestEnv(t)
	answers := []writer.Outcome{writer.Changed, writer.Pass}
	w.admit = func(writer.Write) writer.Admission {
		next := answers[0]
		answers = answers[1:]
		return writer.Admission{Outcome: next}
	}
	o := w.createPending()
	w.reconcile(o)
	w.wantOutcome(Done, "")
	if n := w.api.countRequests(http.MethodPatch); n != 1 || len(answers) != 0 {
		t.Errorf("%d patches, %d steps left", n, len(answers))
	}
}
