package finalize

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

func TestAnObjectIsNotForgottenSinceItCouldNotBeRead(t *testing.T) {
	another := func(w http.ResponseWriter, r *http.Request) { answer(w, r, object("ConfigMap", "ns", "p", entry)) }
	for name, answer := range map[string]http.HandlerFunc{
		"a proxy says 404": proxy404, "an error": oops, "forbidden": refused, "the answer is another object": another,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			o := w.waiting()
			w.api.on(http.MethodGet, answer)
			w.after(w.visit(o), time.Second)
			w.is(Troubled, "read: ")
			if p := w.server.progress(); p.Pending != 1 || len(p.Stuck) != 1 || p.Stuck[0].Object.Name != "o" {
				t.Errorf("progress: %+v", p)
			}
			w.api.mend()
			w.visit(o)
			w.is(Done, "")
		})
	}
}

func TestAnObjectThatIsGoneIsForgotten(t *testing.T) {
	for name, end := range map[string]func(w *world, o *unstructured.Unstructured){
		"deleted": func(w *world, o *unstructured.Unstructured) { w.api.remove(o) },
		"another one by its name": func(w *world, o *unstructured.Unstructured) {
			w.api.remove(o)
			another := o.DeepCopy()
			another.SetUID("another")
			w.api.create(another)
		},
		"without the finalizer": func(w *world, o *unstructured.Unstructured) {
			w.api.change(o, func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/other"}) })
		},
		"its type is gone": func(w *world, _ *unstructured.Unstructured) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.types = typesOf("secrets")
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.module.says(waits)
			o := w.waiting()
			w.visit(o)
			end(w, o)
			w.module.says(isDone)
			w.after(w.visit(o), 0)
			if p := w.server.progress(); p.Pending != 0 {
				t.Errorf("progress: %+v", p)
			}
			if n := len(w.module.asked()); n != 1 {
				t.Errorf("asked %d times", n)
			}
		})
	}
}

// A name is taken over between the module's answer and the write.
func TestDoneIsNotCarriedOutOnAnotherObjectByTheName(t *testing.T) {
	w := newWorld(t)
	o := w.waiting()
	w.module.say = func(hostabi.Request) (hostabi.Verdict, error) {
		w.api.remove(o)
		another := object("ConfigMap", "ns", "o", entry)
		another.SetUID("another")
		w.api.create(another)
		return isDone, nil
	}
	w.after(w.visit(o), 0)
	w.keeps(o)
	if n := w.told(); n.Taken {
		t.Errorf("told: %+v", n)
	}
}

func TestAConflictTakesNothingOfOthersAway(t *testing.T) {
	w := newWorld(t)
	o := w.deleted("ConfigMap", "example.com/a", entry, "example.com/b")
	w.module.say = func(hostabi.Request) (hostabi.Verdict, error) {
		w.api.change(o, func(o *unstructured.Unstructured) {
			o.SetFinalizers(slices.DeleteFunc(o.GetFinalizers(), func(f string) bool { return f == "example.com/a" }))
			o.SetAnnotations(map[string]string{"theirs": "", Annotation: `{"uid": "x"}`})
		})
		return isDone, nil
	}
	w.after(w.visit(o), 0)
	live := w.api.get(o)
	if diff := cmp.Diff([]string{"example.com/b"}, live.GetFinalizers()); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(map[string]string{"theirs": ""}, live.GetAnnotations()); diff != "" {
		t.Error(diff)
	}
}

func TestAConflictThatLastsIsTriedAgainLater(t *testing.T) {
	w := newWorld(t)
	o := w.waiting()
	w.api.on(http.MethodPatch, conflict)
	w.after(w.visit(o), time.Second)
	w.is(Troubled, "take the finalizer off")
	w.keeps(o)
	w.api.mend()
	w.pass(time.Second)
	w.after(w.visit(o), 0)
	w.is(Done, "")
}

// Two writes of one visit need one read: the second is based on the answer to the first.
func TestAVisitReadsTheObjectOnce(t *testing.T) {
	w := newWorld(t)
	state, rounds := []byte(`1`), 0
	w.module.say = func(r hostabi.Request) (hostabi.Verdict, error) {
		if rounds++; rounds == 3 {
			return isDone, nil
		}
		state = append(state, '1')
		return hostabi.Verdict{Decision: hostabi.DecisionAct, State: state}, nil
	}
	o := w.waiting()
	w.visit(o)
	w.is(Done, "")
	w.api.mu.Lock()
	defer w.api.mu.Unlock()
	const at = "/api/v1/namespaces/ns/configmaps/o"
	want := []string{"GET " + at, "GET /api/v1/namespaces/ns", "PATCH " + at, "PATCH " + at, "PATCH " + at}
	if diff := cmp.Diff(want, w.api.asked); diff != "" {
		t.Errorf("requests (-want +got):\n%s", diff)
	}
}

func TestAnAnswerAboutAnotherObjectIsNoSuccess(t *testing.T) {
	w := newWorld(t)
	o := w.waiting()
	w.api.on(http.MethodPatch, func(rw http.ResponseWriter, r *http.Request) { answer(rw, r, object("ConfigMap", "ns", "o")) })
	w.after(w.visit(o), time.Second)
	w.is(Troubled, "about another object")
	if p := w.server.progress(); p.Pending != 1 || p.Released != 0 {
		t.Errorf("progress: %+v", p)
	}
}

func TestFinalizersThatWaitForEachOtherSaySo(t *testing.T) {
	other := func(w *world, name string, after ...string) {
		f := w.finalizer(func(f *policies.Finalizer) { f.UID, f.Entry, f.After = types.UID(name), name, after })
		w.runner.byEntry[name] = newServer(w.runner, served{Finalizer: f})
		w.Cleanup(w.runner.byEntry[name].queue.ShutDown)
	}
	after := func(names ...string) func(*policies.Finalizer) {
		return func(f *policies.Finalizer) { f.After = names }
	}
	t.Run("two", func(t *testing.T) {
		w := newWorld(t, after("example.com/b"))
		other(w, "example.com/b", entry)
		o := w.deleted("ConfigMap", entry, "example.com/b")
		w.after(w.visit(o), 0)
		w.is(Circular, "example.com/f after example.com/b after example.com/f): take one of them out of after")
		if p := w.server.progress(); len(p.Stuck) != 1 || p.Stuck[0].Reason != "Circular" {
			t.Errorf("progress: %+v", p)
		}
		w.keeps(o)
	})
	t.Run("three, and one that only waits for them", func(t *testing.T) {
		w := newWorld(t, after("example.com/d", "example.com/b"))
		other(w, "example.com/b", "example.com/c")
		other(w, "example.com/c", entry, "example.com/b")
		other(w, "example.com/d", "example.com/b")
		w.visit(w.deleted("ConfigMap", entry, "example.com/b", "example.com/c", "example.com/d"))
		w.is(Circular, "example.com/f after example.com/d after example.com/b after example.com/c after example.com/f")
	})
	t.Run("but not the one outside the circle", func(t *testing.T) {
		w := newWorld(t, after("example.com/b"))
		other(w, "example.com/b", "example.com/c")
		other(w, "example.com/c", "example.com/b")
		w.visit(w.deleted("ConfigMap", entry, "example.com/b", "example.com/c"))
		w.is(Waits, "it waits for the finalizer example.com/b")
	})
	t.Run("but not if the object has only one of them", func(t *testing.T) {
		w := newWorld(t, after("example.com/b"))
		other(w, "example.com/b", entry)
		w.visit(w.waiting())
		w.is(Done, "")
	})
	t.Run("nor one that names itself", func(t *testing.T) {
		w := newWorld(t, after(entry))
		w.visit(w.waiting())
		w.is(Done, "")
	})
}

func TestAFinalizerOfANamespaceDoesNothingElsewhere(t *testing.T) {
	w := newWorld(t, func(f *policies.Finalizer) {
		f.Namespace, f.Removed, f.FreeAtRemoval, f.FreeAtDeadline, f.Longest = "other", true, true, true, time.Second
	})
	w.pass(time.Hour)
	o := w.waiting()
	w.after(w.visit(o), 0)
	w.is(Unmeant, "serves nothing outside its namespace")
	live := w.api.create(object("ConfigMap", "ns", "live", entry))
	w.visit(live)
	w.keeps(o)
	w.keeps(live)
}

func TestARemovedFinalizerTakesNothingOffThatAnotherOneServes(t *testing.T) {
	w := newWorld(t)
	w.restart(w.finalizer(func(f *policies.Finalizer) {
		f.Removed, f.FreeAtRemoval, f.FreeAtDeadline, f.Longest = true, true, true, time.Second
	}))
	w.server.replace(served{Finalizer: w.server.finalizer().Finalizer, shared: true})
	w.pass(time.Hour)
	w.module.says(waits)
	o := w.waiting()
	w.visit(o)
	w.keeps(o)
	w.server.replace(served{Finalizer: w.server.finalizer().Finalizer})
	w.visit(o)
	w.is(Released, "onRemoval: Release")
}

func TestMatchConditionsThatFailAreAFaultOfTheirs(t *testing.T) {
	w := newWorld(t, func(f *policies.Finalizer) {
		f.Matches = func(context.Context, map[string]any) (bool, error) { return false, errors.New("no such key: spec") }
	})
	o := w.waiting()
	w.after(w.visit(o), time.Second)
	w.is(AtFault, "no such key: spec")
	w.keeps(o)
}
