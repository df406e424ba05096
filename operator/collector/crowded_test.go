package collector_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	eventrecord "k8s.io/client-go/tools/record"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

var crowdedID = graph.IDOf("crowded")

// crowdedWorld is a world with a ConfigMap that has so many invented owners.
func crowdedWorld(t *testing.T, owners int) (w *world, crowded *object, events *eventrecord.FakeRecorder) {
	t.Helper()
	w, events = newWorld(t), eventrecord.NewFakeRecorder(100)
	w.events = events
	w.connect()
	crowded = w.create(words{plain: []string{"ConfigMap", "ns/crowded"}})
	for i := range owners {
		name := fmt.Sprint("never-", i)
		crowded.OwnerReferences = append(crowded.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: types.UID(name)})
	}
	w.api.changed(crowded)
	w.see(crowded)
	return w, crowded, events
}

func (w *world) exists(o *object) bool { return w.api.objects[o.key] != nil }

func (w *world) reads() (n int) {
	n = w.api.counts[http.MethodGet]
	w.api.counts[http.MethodGet] = 0
	return n
}

// An object that has lost all its thousands of owners is collected as any other is; it
// takes several passes, of which its records and events tell once.
func TestAnObjectWithThousandsOfAbsentOwnersIsCollectedInTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // with a clock of its own: a pass ends after ten seconds
		w, o, events := crowdedWorld(t, 1700)
		i := crowdedID
		if result, err := w.Reconcile(t.Context(), i); err != nil || result.RequeueAfter != time.Minute || w.ParkedCount() != 1 {
			t.Fatalf("after a pass: %+v, %v, %d parked", result, err, w.ParkedCount())
		}
		if reads := w.reads(); reads != 500 || !w.exists(o) {
			t.Fatalf("a pass takes %d reads, object is there: %t", reads, w.exists(o))
		}
		result, err := w.ReconcileCrowded(t.Context(), i)
		if err != nil || result.RequeueAfter != 0 || w.exists(o) || w.ParkedCount() != 0 {
			t.Errorf("after a turn: %+v, %v, object is there: %t, %d parked", result, err, w.exists(o), w.ParkedCount())
		}
		if reads := w.reads(); reads != 1200 {
			t.Errorf("the turn took %d reads more", reads)
		}
		var reported []string
		for _, e := range w.records.Entries("") {
			reported = append(reported, fmt.Sprintf("%s: %s", e.Reason, e.Action))
			if len(e.Owners)+e.OwnersOmitted != 1700 || len(e.Owners) > 20 || len(e.String()) > 2000 {
				t.Errorf("the record of %s names %d owners, leaves out %d, and has %d bytes", e.Reason, len(e.Owners), e.OwnersOmitted, len(e.String()))
			}
		}
		if got := strings.Join(reported, ", "); got != "TooManyOwners: None, OwnersAbsent: Delete" {
			t.Errorf("records: %s", got)
		}
		if len(events.Events) != 1 {
			t.Errorf("%d events", len(events.Events))
		}
		if got := <-events.Events; got != "Warning TooManyOwners ConfigMap ns/crowded: unchanged, TooManyOwners (it has 1700 owner references, which are read little by little)" {
			t.Errorf("event: %s", got)
		}
	})
}

// One owner that can't be read, or that is there, is as good as any with thousands, too.
func TestAmongThousandsOneOwnerIsEnough(t *testing.T) {
	for claim, c := range map[string]struct {
		prepare func(*world)
		reason  record.Reason
	}{
		"that can't be read": {func(w *world) { w.api.faults["GET never-1650"] = &fault{with: "500", times: 100} }, "OwnerUnreadable"},
		"that is there": {func(w *world) {
			w.create(words{plain: []string{"ConfigMap", "ns/never-1650"}})
		}, "OwnerRemains"},
	} {
		t.Run(claim, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, o, _ := crowdedWorld(t, 1700)
				c.prepare(w)
				if _, err := w.ReconcileCrowded(t.Context(), crowdedID); err != nil {
					t.Fatal(err)
				}
				if !w.exists(o) {
					t.Fatal("it was deleted")
				}
				entries := w.records.Entries("crowded")
				if last := entries[len(entries)-1]; last.Reason != c.reason {
					t.Errorf("it stays for %s", last.Reason)
				}
			})
		})
	}
}

// The worker of such objects has one read in flight, for a fifth of the time, and reads
// no more than a hundred owners a second.
func TestTheWorkerOfCrowdedObjectsRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // with a clock of its own: a pass ends after ten seconds
		for read, want := range map[time.Duration]time.Duration{time.Millisecond: 16500 * time.Millisecond, 10 * time.Millisecond: 77 * time.Second} {
			w, o, _ := crowdedWorld(t, 1700)
			w.api.meet = func(verb, _ string) {
				if verb == http.MethodGet {
					w.now = w.now.Add(read)
				}
			}
			began := w.now
			if _, err := w.ReconcileCrowded(t.Context(), crowdedID); err != nil || w.exists(o) {
				t.Errorf("%v, object is there: %t", err, w.exists(o))
			}
			if took := w.now.Sub(began); took < want || took > want+10*time.Second {
				t.Errorf("with reads of %s it took %s, want %s", read, took, want)
			}
		}
	})
}

// Of an object with more owners than are kept it is never known that all are absent.
func TestAnObjectWithMoreOwnersThanAreKeptStaysAndIsLookedAtLessAndLess(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // with a clock of its own: a pass ends after ten seconds
		w, o, _ := crowdedWorld(t, graph.MaxOwners+1)
		i, last := crowdedID, time.Duration(0)
		for turn := range 12 {
			result, err := w.ReconcileCrowded(t.Context(), i)
			if err != nil || !w.exists(o) || result.RequeueAfter < last || result.RequeueAfter < time.Minute || result.RequeueAfter > time.Hour {
				t.Fatalf("turn %d: %+v after %s, %v, object is there: %t", turn, result, last, err, w.exists(o))
			}
			last = result.RequeueAfter
		}
		if last != time.Hour || w.ParkedCount() != 1 {
			t.Errorf("in the end again after %s, %d parked", last, w.ParkedCount())
		}
		if reads := w.reads(); reads != graph.MaxOwners {
			t.Errorf("%d reads", reads)
		}
	})
}
