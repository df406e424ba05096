package loop

import (
	"bytes"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/metadata"
	eventrecord "k8s.io/client-go/tools/record"

	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/gather"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/policies"
)

// Stage is a copy of a cluster, for a Rehearsal to work on. All fields are required,
// but for Policies.
type Stage struct {
	Graph    *graph.Graph // of the copy; it is changed
	Client   metadata.Interface
	Types    gather.Sources
	Serves   gather.Serves
	Reader   consult.Reader
	Intents  consult.Intents
	Policies *policies.Set // nil: they are not known, and everything is kept that they might be asked about
	Default  policies.Evaluator
	Now      func() time.Time

	// Keys verify what is remembered on the copy's objects, and sign what is written
	// there. An error says that there may be other keys. Unverified is told if an object
	// is kept for that.
	Keys       func() (statekey.Keys, error)
	Unverified func(error)

	// Tell is told of each decision, before the next one is made.
	Tell func(record.Entry)

	// Turn is told whose turn it is.
	Turn func(graph.ID)
}

// Rehearsal does on a Stage what a Loop does in a cluster, in the goroutine of its
// caller: the same facts lead to the same plans by the same code. Create it with
// Rehearse. Its methods may not be called concurrently.
type Rehearsal struct {
	loop  *Loop
	stage Stage
	woken map[graph.ID]struct{}
	due   map[graph.ID]time.Time
}

// rehearsedRecords is how many decisions are kept for the chains of later ones.
const rehearsedRecords = 1000

// Rehearse makes a Rehearsal. What the Stage's graph has at this moment wakes
// nobody.
func Rehearse(s Stage) *Rehearsal {
	l := unconnected(Options{Evaluator: s.Default, Log: logr.Discard()}, s.Now)
	l.records = record.NewStore(record.Bounds{Entries: rehearsedRecords})
	l.stateKeys = s.Keys
	l.rehearsed, l.noted = func() *policies.Set { return s.Policies }, s.Tell
	l.events = &eventrecord.FakeRecorder{} // which tells nobody
	l.wire(s.Client, s.Client, s.Types, s.Serves, s.Reader, s.Intents)
	l.consultant.Unverified = s.Unverified
	l.gatherer.Reader.Late = nil // the Stage is not to be changed by other goroutines
	r := &Rehearsal{loop: l, stage: s, woken: map[graph.ID]struct{}{}, due: map[graph.ID]time.Time{}}
	l.known.graph, l.known.leading = s.Graph, true
	l.known.add = func(id graph.ID) { r.woken[id] = struct{}{} }
	l.gate.set(Open)
	return r
}

// Apply takes in what has happened on the Stage.
func (r *Rehearsal) Apply(events ...graph.Event) { r.loop.known.Apply(events...) }

// Hold has some objects looked at for the hold that policies want on them, or don't
// want any more.
func (r *Rehearsal) Hold(which func(graph.ID) bool) {
	before := maps.Clone(r.woken)
	r.loop.policiesChanged()
	maps.DeleteFunc(r.woken, func(id graph.ID, _ struct{}) bool {
		_, was := before[id]
		return !was && !which(id)
	})
}

// Work does what there is to be done about the objects that have been woken, and
// reports whether there was anything. What it changes is to be applied before it is
// called again.
func (r *Rehearsal) Work(ctx context.Context) (worked bool, failed map[graph.ID]error) {
	ids := slices.SortedFunc(maps.Keys(r.woken), func(a, b graph.ID) int { return bytes.Compare(a[:], b[:]) })
	clear(r.woken)
	failed = map[graph.ID]error{}
	for _, id := range ids {
		r.stage.Turn(id)
		result, err := r.loop.Reconcile(ctx, id)
		delete(r.due, id)
		switch {
		case err != nil:
			failed[id] = err
		case result.RequeueAfter > 0 && r.loop.waits.is(id):
			r.due[id] = r.stage.Now().Add(result.RequeueAfter)
		}
	}
	select {
	case <-r.loop.barrier.Asked():
		r.loop.known.again(r.loop.barrier.Round(ctx))
		return true, failed
	default:
		return len(ids) != 0, failed
	}
}

// Next returns when something is to be done that only waits for its time. Wake wakes
// it then.
func (r *Rehearsal) Next() (at time.Time, waits bool) {
	for _, due := range r.due {
		if !waits || due.Before(at) {
			at, waits = due, true
		}
	}
	return at, waits
}

// Wake wakes what is due by now.
func (r *Rehearsal) Wake() {
	for id, due := range r.due {
		if !due.After(r.stage.Now()) {
			r.woken[id] = struct{}{}
		}
	}
}

// Forget has an object not looked at again of itself.
func (r *Rehearsal) Forget(id graph.ID) { delete(r.due, id) }

// is reports whether an object's policy has said when to ask again.
func (w *waits) is(id graph.ID) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, waits := w.of[id]
	return waits
}
