package finalize

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

func TestAWaitEndsExactlyWhenItSays(t *testing.T) {
	w := newWorld(t)
	w.module.says(waits)
	o := w.waiting()
	w.after(w.visit(o), time.Hour)
	w.pass(time.Hour - time.Nanosecond)
	w.after(w.visit(o), time.Millisecond) // the queue counts in no less
	if n := len(w.module.asked()); n != 1 {
		t.Fatalf("asked %d times before its time", n)
	}
	w.pass(time.Nanosecond)
	w.after(w.visit(o), time.Hour)
	if asked := w.module.asked(); len(asked) != 1 || asked[0].Attempt != 2 {
		t.Errorf("asked when it is over: %+v", asked)
	}
}

func TestTheBackoffAfterFaultsDoublesUpToItsCapAndBeginsAnew(t *testing.T) {
	w := newWorld(t)
	w.module.fails("it traps")
	o := w.waiting()
	for _, want := range []time.Duration{1, 2, 4, 8, 10, 10} {
		w.after(w.visit(o), want*time.Second)
		w.is(AtFault, "it traps")
		w.pass(want * time.Second)
	}
	w.module.says(waits)
	w.after(w.visit(o), time.Hour)
	w.pass(time.Hour)
	w.module.fails("it traps")
	w.after(w.visit(o), time.Second)
}

func TestTheBackoffGrowsWhileTheFinalizerCanNotBeTakenOff(t *testing.T) {
	w := newWorld(t)
	o := w.waiting()
	w.api.on(http.MethodPatch, refused)
	for _, want := range []time.Duration{1, 2, 4} {
		w.after(w.visit(o), want*time.Second)
		n := w.told()
		if n.Reason != Troubled || !n.Asked || !strings.Contains(n.Message, "a webhook says no") {
			t.Fatalf("told: %+v", n)
		}
		w.pass(want * time.Second)
	}
	w.api.mend()
	w.after(w.visit(o), 0)
	if n := w.told(); n.Reason != Done || !n.Taken {
		t.Errorf("told: %+v", n)
	}
}

func TestADeadline(t *testing.T) {
	held := func(f *policies.Finalizer) { f.Longest = time.Minute }
	frees := func(f *policies.Finalizer) { held(f); f.FreeAtDeadline = true }
	t.Run("is looked at when it comes, and not before", func(t *testing.T) {
		w := newWorld(t, held)
		w.module.says(waits)
		o := w.waiting()
		w.after(w.visit(o), time.Minute)
		w.is(Waits, "")
		w.pass(time.Minute)
		w.after(w.visit(o), time.Hour-time.Minute)
		w.is(Overdue, "its deadline of 1m0s is over (onDeadline: Hold)")
		if n := len(w.module.asked()); n != 1 {
			t.Errorf("asked %d times", n)
		}
		w.visit(o)
		if n := w.told(); n.Reason != "" {
			t.Errorf("told again: %+v", n)
		}
	})
	t.Run("that was over long before the start is told at once", func(t *testing.T) {
		w := newWorld(t, held)
		w.module.says(waits)
		w.pass(240 * time.Hour)
		w.after(w.visit(w.waiting()), time.Hour)
		w.is(Overdue, "")
	})
	t.Run("that was over long before the start lets it go without asking", func(t *testing.T) {
		w := newWorld(t, frees)
		w.pass(240 * time.Hour)
		o := w.waiting()
		w.after(w.visit(o), 0)
		w.is(Released, "onDeadline: Release")
		if n := len(w.module.asked()); n != 0 || w.api.get(o) != nil {
			t.Errorf("asked %d times, there is %v", n, w.api.get(o))
		}
	})
	t.Run("lets nothing go a moment before", func(t *testing.T) {
		w := newWorld(t, frees)
		w.module.says(waits)
		w.pass(time.Minute - time.Millisecond)
		o := w.waiting()
		w.after(w.visit(o), time.Millisecond)
		w.keeps(o)
	})
	t.Run("lets nothing go in Monitor", func(t *testing.T) {
		w := newWorld(t, frees, func(f *policies.Finalizer) { f.Enforce = false })
		w.module.says(waits)
		w.pass(time.Hour)
		o := w.waiting()
		w.visit(o)
		w.is(Overdue, "mode: Monitor")
		w.keeps(o)
	})
}

func TestOnceNothingHindersItAModuleIsAskedAgain(t *testing.T) {
	for name, hinder := range map[string]func(w *world, o *unstructured.Unstructured) (mend func()){
		"its module was not ready for a while": func(w *world, _ *unstructured.Unstructured) func() {
			was := w.server.finalizer()
			w.server.replace(served{Finalizer: w.finalizer(func(f *policies.Finalizer) { f.Asker, f.NotReady = nil, "it is away" })})
			return func() { w.server.replace(was) }
		},
		"it was not selected for a while": func(w *world, o *unstructured.Unstructured) func() {
			was := w.server.finalizer()
			rules := was.Rules
			was.Rules = []policies.Rule{{Groups: []string{""}, Resources: []string{"secrets"}}}
			return func() { was.Rules = rules }
		},
		"it could not be read for a while": func(w *world, _ *unstructured.Unstructured) func() {
			w.api.on(http.MethodGet, oops)
			return func() { w.api.mend(); w.pass(time.Second) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.module.says(waits)
			o := w.waiting()
			w.visit(o)
			mend := hinder(w, o)
			w.told()
			w.visit(o)
			if n := w.told(); n.Reason == Waits || n.Reason == "" {
				t.Fatalf("nothing hindered it: %+v", n)
			}
			w.module.asked()
			mend()
			w.after(w.visit(o), time.Hour)
			w.is(Waits, "")
			if n := len(w.module.asked()); n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

// A module is loading after each start of the operator, which is no news.
func TestWhileItsModuleIsLoadingAnObjectWaitsAndIsNotStuck(t *testing.T) {
	w := newWorld(t)
	was := w.server.finalizer()
	w.server.replace(served{Finalizer: w.finalizer(func(f *policies.Finalizer) { f.Asker, f.NotReady, f.Loading = nil, "it is being fetched", true })})
	o := w.waiting()
	w.visit(o)
	w.is(Waits, "it waits for its module: it is being fetched")
	w.keeps(o)
	w.server.replace(was)
	w.module.says(waits)
	w.after(w.visit(o), time.Hour)
	w.is(Waits, "")
	if n := len(w.module.asked()); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

func TestAFailure(t *testing.T) {
	fails := func(t *testing.T, kind string) (*world, *unstructured.Unstructured) {
		w := newWorld(t)
		w.module.says(gaveUp)
		o := w.deleted(kind, entry)
		w.after(w.visit(o), 0)
		w.is(Failed, "nobody can help it; not retried until the object, the spec of ClusterFinalizer f or its module changes")
		w.module.asked()
		return w, o
	}
	asked := func(w *world, o *unstructured.Unstructured, want int) {
		w.Helper()
		w.pass(time.Minute)
		w.visit(o)
		if n := len(w.module.asked()); n != want {
			w.Errorf("asked %d times, want %d", n, want)
		}
	}
	t.Run("stands, also in the next process", func(t *testing.T) {
		w, o := fails(t, "ConfigMap")
		asked(w, o, 0)
		w.restart(w.finalizer())
		asked(w, o, 0)
		w.is(Failed, "nobody can help it; not retried until the object, the spec of ClusterFinalizer f or its module changes")
	})
	t.Run("of a role stands for as long as the process does (A-16)", func(t *testing.T) {
		w, o := fails(t, "Role")
		asked(w, o, 0)
		if got := w.api.get(o).GetAnnotations(); len(got) != 0 {
			t.Errorf("annotated: %v", got)
		}
		w.restart(w.finalizer())
		asked(w, o, 1)
	})
	t.Run("ends with a change of the object", func(t *testing.T) {
		w, o := fails(t, "ConfigMap")
		w.api.change(o, label("changed"))
		asked(w, o, 1)
	})
	t.Run("does not come back with the object as it was", func(t *testing.T) {
		w, o := fails(t, "ConfigMap")
		w.module.says(waits)
		w.api.change(o, label("changed"))
		asked(w, o, 1)
		w.api.change(o, func(o *unstructured.Unstructured) { o.SetLabels(nil) })
		asked(w, o, 1)
		w.is(Waits, "")
	})
	for name, change := range map[string]func(*policies.Finalizer){
		"the resource":               func(f *policies.Finalizer) { f.Generation++ },
		"the module":                 func(f *policies.Finalizer) { f.Digest = "another" },
		"the resource for a new one": func(f *policies.Finalizer) { f.UID = "another" },
	} {
		t.Run("ends with a change of "+name, func(t *testing.T) {
			w, o := fails(t, "ConfigMap")
			w.server.replace(served{Finalizer: w.finalizer(change)})
			asked(w, o, 1)
		})
	}
}

func TestWhatIsRememberedOutlivesTheProcessAndGoesWithTheFinalizer(t *testing.T) {
	w := newWorld(t)
	w.module.says(hostabi.Verdict{Decision: hostabi.DecisionWait, State: json.RawMessage(`{"a": 1}`)})
	o := w.deleted("ConfigMap", entry, "example.com/other")
	w.visit(o)
	w.restart(w.finalizer())
	w.module.says(isDone)
	w.visit(o)
	asked := w.module.asked()
	if last := asked[len(asked)-1]; string(last.State) != `{"a":1}` || last.Attempt != 2 || last.IdempotencyKey != asked[0].IdempotencyKey {
		t.Errorf("asked with %s, attempt %d, key %s after %s", last.State, last.Attempt, last.IdempotencyKey, asked[0].IdempotencyKey)
	}
	live := w.api.get(o)
	if diff := cmp.Diff([]string{"example.com/other"}, live.GetFinalizers()); diff != "" || len(live.GetAnnotations()) != 0 {
		t.Errorf("left: %v %s", live.GetAnnotations(), diff)
	}
}

func TestInMonitorNothingIsWritten(t *testing.T) {
	for name, v := range map[string]hostabi.Verdict{
		"Done": isDone, "Fail": gaveUp, "Wait": {Decision: hostabi.DecisionWait, State: json.RawMessage(`1`)},
		"Act": {Decision: hostabi.DecisionAct, State: json.RawMessage(`1`)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, func(f *policies.Finalizer) { f.Enforce, f.Attach = false, true })
			w.module.says(v)
			w.visit(w.waiting())
			if n := len(w.module.asked()); n == 0 {
				t.Error("not asked")
			}
			w.visit(w.api.create(object("ConfigMap", "ns", "live")))
			if n := w.api.asks(http.MethodPatch); n != 0 {
				t.Errorf("written %d times", n)
			}
		})
	}
}

func TestAModuleThatWakesItselfIsAskedLessAndLess(t *testing.T) {
	w := newWorld(t)
	o := w.waiting()
	w.does = func(hostabi.Intent) hostabi.Result {
		w.api.change(o, label("at-"+w.now().Format("150405")))
		return hostabi.Result{}
	}
	w.module.say = func(r hostabi.Request) (hostabi.Verdict, error) {
		if r.Round > 1 {
			return waits, nil
		}
		return hostabi.Verdict{Decision: hostabi.DecisionAct, Intents: []hostabi.Intent{{ID: "a", Patch: &hostabi.PatchIntent{}}}}, nil
	}
	w.visit(o)
	var got []time.Duration
	for range 8 {
		after := w.visit(o)
		got = append(got, after)
		w.pass(after)
		w.visit(o)
	}
	want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60}
	for i := range want {
		want[i] *= time.Second
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("asked again after (-want +got):\n%s", diff)
	}
}

func TestAModuleIsAskedAtOnceWhenSomebodyElseChangesTheObject(t *testing.T) {
	w := newWorld(t)
	w.module.says(waits)
	o := w.waiting()
	for _, name := range []string{"a", "b", "c", "d"} {
		w.visit(o)
		w.api.change(o, label(name))
		w.after(w.visit(o), time.Second) // at once, but not all the time
		w.pass(time.Second)
	}
	w.visit(o)
	if n := len(w.module.asked()); n != 5 {
		t.Errorf("asked %d times", n)
	}
}

func TestAModuleThatNeverEndsIsAtFault(t *testing.T) {
	w := newWorld(t)
	w.module.says(hostabi.Verdict{Decision: hostabi.DecisionAct})
	o := w.waiting()
	w.after(w.visit(o), time.Second)
	w.is(AtFault, "after 16 rounds")
	w.keeps(o)
}
