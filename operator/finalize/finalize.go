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
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/policies"
)

// Options are what a Runner is made of. All are required.
type Options struct {
	// Finalizers are those in force; known is false until they have been read.
	Finalizers func() (list []*policies.Finalizer, known bool)

	Catalog func() *catalog.Catalog
	Reader  consult.Reader
	Client  metadata.Interface // writes finalizers and annotations
	Intents Intents

	Leads   func() bool // only who leads does anything
	Note    func(Note)  // is told each decision
	Changed func()      // is called when some Progress has changed

	Interval time.Duration // between looks at all objects of the finalizers' resources
	Now      func() time.Time
	Log      logr.Logger
}

// Intents carries out what modules ask for.
type Intents interface {
	Do(ctx context.Context, on intents.Behalf, intent hostabi.Intent) hostabi.Result
}

// Runner serves finalizers. Its methods may be called concurrently.
type Runner struct {
	Options

	pokes chan struct{} // capacity 1: something has changed

	mu      sync.RWMutex // covers what follows
	servers map[types.UID]*server
	byEntry map[string]*server
	kinds   map[schema.GroupKind][]*server // that are to be put on objects of a kind, or taken off
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
				s.wake(e.Object.UID)
			}
		}
	}
}

func (r *Runner) seen(o graph.Object) {
	if !o.Terminating {
		for _, s := range r.kinds[o.Kind.GroupKind()] {
			if s.finalizer().wants(slices.Contains(o.Finalizers, s.entry)) {
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
	var look []*server
	r.mu.Lock()
	there := map[types.UID]bool{}
	for _, f := range list {
		there[f.UID] = true
		s, ok := r.servers[f.UID]
		if ok && s.entry != f.Entry {
			go s.stop()
			ok = false
		}
		if !ok {
			s = startServer(ctx, r, f)
			r.servers[f.UID] = s
			look = append(look, s)
			continue
		}
		if s.replace(f) || all || f.Removed {
			look = append(look, s)
		}
	}
	for uid, s := range r.servers {
		if !there[uid] {
			go s.stop()
			delete(r.servers, uid)
		}
	}
	r.index()
	r.mu.Unlock()
	for _, s := range look {
		s.look()
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

// stop ends all serving.
func (r *Runner) stop() {
	r.mu.Lock()
	servers := r.servers
	r.servers, r.byEntry, r.kinds = map[types.UID]*server{}, nil, nil
	r.mu.Unlock()
	for _, s := range servers {
		s.stop()
	}
}

// key names an object.
type key struct {
	kind      schema.GroupKind
	namespace string
	name      string
	uid       types.UID
}

func (k key) String() string {
	if k.namespace == "" {
		return fmt.Sprintf("%s %s", k.kind.Kind, k.name)
	}
	return fmt.Sprintf("%s %s/%s", k.kind.Kind, k.namespace, k.name)
}

func keyOf(o graph.Object) key {
	return key{o.Kind.GroupKind(), o.Namespace, o.Name, o.UID}
}

// served is a finalizer in force, with what follows from it.
type served struct{ *policies.Finalizer }

// frees reports whether the finalizer is taken off everything.
func (f served) frees() bool { return f.Removed && f.FreeAtRemoval }

// wants reports whether an object that is not being deleted is to be written.
func (f served) wants(carries bool) bool {
	if carries {
		return f.frees()
	}
	return f.Attaches()
}

// exempt reports whether the finalizer is never put on objects of a namespace.
func exempt(namespace string) bool { return namespace == metav1.NamespaceSystem }
