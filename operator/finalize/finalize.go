// Package finalize serves finalizers that are written as modules: it asks the module
// about each object that is being deleted and has the finalizer, carries out what the
// module asks for within its grants, and takes the finalizer off when it says so.
//
// What is to be done follows from the object as it is, its deletionTimestamp and what
// is remembered on it; nothing else has to survive the process. A module is asked at
// least once, and may be asked again about what it has done already: it is told a key
// that stays the same, and its state.
//
// The rule that everything here serves: whatever goes wrong keeps the object, unless
// its finalizer says that it is to be let go.
package finalize

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/operator/writelimit"
	"github.com/gleaner-dev/gleaner/policies"
)

// Options are what a Runner is made of. All are required.
type Options struct {
	// Finalizers are those in force; known is false until they have been read.
	Finalizers func() (list []*policies.Finalizer, known bool)

	Catalog func() *catalog.Catalog
	Reader  consult.Reader
	Client  metadata.Interface // writes finalizers and annotations
	Intents consult.Intents

	// Keys sign and verify what is remembered on objects. With an error nothing can be
	// signed, and objects are kept of which something is remembered.
	Keys func() (statekey.Keys, error)

	// States and Effects bound how much modules have written onto the objects that they
	// are asked about, and done elsewhere; nil: nothing does.
	States, Effects *writelimit.Limiter

	Namespace string // the operator's own, in which nothing is attached

	Leads   func() bool // only who leads does anything
	Note    func(Note)  // is told each decision
	Changed func()      // is called when some Progress has changed

	Interval time.Duration // between looks at all objects of the finalizers' resources
	Now      func() time.Time
	Log      logr.Logger
}

// Runner serves finalizers. Its methods may be called concurrently.
type Runner struct {
	Options

	pokes chan struct{} // capacity 1: something has changed

	ending sync.WaitGroup // servers that end

	mu      sync.RWMutex // covers what follows; it is taken before a server's
	servers map[types.UID]*server
	byEntry map[string]*server
	kinds   map[schema.GroupKind][]*server // that are to be put on objects of a kind, or taken off
	left    map[types.UID]bool             // removed finalizers that leave their objects to another of the same name
}

// New returns a Runner that serves nothing yet.
func New(o Options) *Runner {
	return &Runner{Options: o, pokes: make(chan struct{}, 1), servers: map[types.UID]*server{}}
}

// Poke has the Runner look whether other finalizers, or other types, are there, or
// whether it leads now.
func (r *Runner) Poke() {
	select {
	case r.pokes <- struct{}{}:
	default:
	}
}

// Retry looks again at all objects that wait for a finalizer.
func (r *Runner) Retry() {
	r.mu.RLock()
	defer r.mu.RUnlock()
	for _, s := range r.servers {
		s.wakeAll(every)
	}
}

// Apply listens to what is watched.
func (r *Runner) Apply(events ...graph.Event) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	if len(r.servers) == 0 {
		return
	}
	for _, e := range events {
		switch e := e.(type) {
		case graph.Seen:
			r.seen(e.Object)
		case graph.Deleted:
			for _, s := range r.servers {
				s.gone(e.Object.UID)
			}
		case graph.Relisted: // nobody tells of what is missing
			r.wakeKind(e.Kind)
		case graph.TypeGone:
			r.wakeKind(e.Kind)
		}
	}
}

func (r *Runner) wakeKind(gk schema.GroupKind) {
	for _, s := range r.servers {
		s.wakeAll(func(t *track) bool { return t.key.kind == gk })
	}
}

func (r *Runner) seen(o graph.Object) {
	if !o.Terminating {
		for _, s := range r.kinds[o.Kind.GroupKind()] {
			if f := s.finalizer(); f.reaches(o.Namespace) && f.wants(slices.Contains(o.Finalizers, s.entry)) {
				s.add(keyOf(o))
			}
		}
		return
	}
	for _, entry := range o.Finalizers {
		if s, ok := r.byEntry[entry]; ok {
			s.await(keyOf(o))
		}
	}
	for _, s := range r.servers {
		if !slices.Contains(o.Finalizers, s.entry) {
			s.wake(o.UID) // somebody else has taken it off
		}
	}
}

// Run serves until ctx ends.
func (r *Runner) Run(ctx context.Context) error {
	defer r.stop()
	tick := time.NewTicker(r.Interval)
	defer tick.Stop()
	var types *catalog.Catalog
	led := false
	for {
		all := false
		select {
		case <-ctx.Done():
			return nil
		case <-r.pokes:
		case <-tick.C:
			all = true
		}
		leads, now := r.Leads(), r.Catalog()
		if !leads {
			r.stop()
			led, types = false, nil
			continue
		}
		all = all || !led || types == nil || !types.Equal(now)
		led, types = true, now
		r.sync(ctx, all)
	}
}

// sync has each finalizer in force served, and none else. Those that are new or
// changed have their objects looked for; with all, every one has.
func (r *Runner) sync(ctx context.Context, all bool) {
	list, known := r.Finalizers()
	if !known {
		return
	}
	serve, left := heirs(list)
	r.mu.Lock()
	more := len(left) > len(r.left)
	r.left = left
	there, changed := map[types.UID]bool{}, false
	var look []*server
	for _, f := range serve {
		there[f.UID] = true
		s, ok := r.servers[f.UID]
		if ok && s.entry != f.Entry {
			r.end(s)
			ok = false
		}
		switch {
		case !ok:
			s = startServer(ctx, r, f)
			r.servers[f.UID] = s
			changed, look = true, append(look, s)
		case s.replace(f):
			changed, look = true, append(look, s)
		case all:
			look = append(look, s)
		}
	}
	for uid, s := range r.servers {
		if !there[uid] {
			r.end(s)
			delete(r.servers, uid)
			changed = true
		}
	}
	r.index()
	if changed { // a circle may be broken in any of the finalizers that make it
		for _, s := range r.servers {
			s.wakeAll(func(t *track) bool { return t.reason == Circular })
		}
	}
	r.mu.Unlock()
	for _, s := range look {
		s.look()
	}
	if more {
		r.Changed()
	}
}

// index finds servers by what an event tells. Two finalizers of one name are both
// not ready, and share what comes.
func (r *Runner) index() {
	r.byEntry, r.kinds = map[string]*server{}, map[schema.GroupKind][]*server{}
	for _, s := range r.servers {
		r.byEntry[s.entry] = s
		f := s.finalizer()
		if !f.Attaches() && !f.frees() {
			continue
		}
		for _, t := range r.Catalog().Collected() {
			if f.Selects(t.Version.GroupResource()) {
				r.kinds[t.GroupKind()] = append(r.kinds[t.GroupKind()], s)
			}
		}
	}
}

// end has a server end.
func (r *Runner) end(s *server) {
	s.cancel()
	r.ending.Go(s.stop)
}

// stop ends all serving, and waits until it has ended.
func (r *Runner) stop() {
	r.mu.Lock()
	for _, s := range r.servers {
		r.end(s)
	}
	r.servers, r.byEntry, r.kinds, r.left = map[types.UID]*server{}, nil, nil, nil
	r.mu.Unlock()
	r.ending.Wait()
}

// after are the finalizers that go before another one.
func (r *Runner) after(entry string) []string {
	r.mu.RLock()
	s, ok := r.byEntry[entry]
	r.mu.RUnlock()
	if !ok {
		return nil
	}
	return s.finalizer().After
}
