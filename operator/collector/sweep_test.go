package collector_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// lose has the queue forget all that it was given, as if no event had led to it.
func (w *world) lose() {
	w.queueing.Lock()
	defer w.queueing.Unlock()
	clear(w.woken)
}

// sweeping runs the sweep with its timer, in a bubble where time passes when all wait,
// until the test ends.
func (w *world) sweeping(interval time.Duration) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	done := make(chan error, 1)
	go func() { done <- w.RunSweeps(ctx, interval) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
	}
}

// after is what the sweep has queued when some time has passed.
func (w *world) after(d time.Duration) []graph.ID {
	<-time.After(d)
	synctest.Wait()
	w.queueing.Lock()
	defer w.queueing.Unlock()
	return slices.Collect(maps.Keys(w.woken))
}

func TestSweep_AloneCollectsWhatNoEventLedTo(t *testing.T) {
	const interval = time.Minute
	for claim, given := range map[string]string{
		"an object whose owner does not exist":        "ConfigMap ns/left owners=(ReplicaSet.apps:rs)",
		"an owner that waits for dependents no more":  "ReplicaSet.apps ns/left finalizers=(foregroundDeletion)",
		"an owner that has orphaned all there is yet": "ReplicaSet.apps ns/left finalizers=(orphan)",
	} {
		t.Run(claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				w.run("given", words{}, given)
				if strings.Contains(given, "finalizers") {
					w.delete(words{plain: []string{"left"}})
					w.catchUp()
				}
				w.lose()
				defer w.sweeping(interval)()
				if early := w.after(interval - 1); len(early) != 0 {
					t.Fatalf("queued before the sweep: %v", early)
				}
				queued := w.after(1)
				if want := []graph.ID{graph.IDOf(types.UID("left"))}; !slices.Equal(queued, want) {
					t.Fatalf("the sweep has queued %v, not %v", queued, want)
				}
				w.work(queued)
				w.settle() // the barrier, for which owners wait
				if live := w.api.objects; len(live) != 0 {
					t.Errorf("still there: %v\n%s", live, &w.out)
				}
			})
		})
	}
}

func TestSweep_ComesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run("given", words{}, "ConfigMap ns/left owners=(ReplicaSet.apps:rs)")
		defer w.sweeping(time.Minute)()
		for range 3 {
			w.lose()
			if queued := w.after(time.Minute); len(queued) != 1 {
				t.Fatalf("queued: %v", queued)
			}
		}
	})
}

func TestSweep_QueuesNothingWhereAnotherReplicaLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.run("given", words{}, "ConfigMap ns/left owners=(ReplicaSet.apps:rs)")
		w.lose()
		w.store.Follow()
		defer w.sweeping(time.Minute)()
		if queued := w.after(time.Hour); len(queued) != 0 {
			t.Fatalf("queued: %v", queued)
		}
	})
}
