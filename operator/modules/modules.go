// Package modules makes the policies in force of the custom resources that
// declare them, and tells their authors by status what became of them.
//
// It reads all of them anew whenever one of them has changed, and makes one immutable
// set, which replaces the one before as a whole. What could not be read leaves the set
// as it was: unread is not absent. Until it has been read once there is no set, and
// whoever asks has to wait. It waits for no module: they are loaded by a
// modulestore.Store, and what one that is loading is to decide is kept until it is ready.
package modules

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/cel-go/cel"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/operator/modulestore/workers"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/source/egress"
	"github.com/gleaner-dev/gleaner/policies/worker"
)

// Options are what a Keeper is made of.
type Options struct {
	Config    *rest.Config // with what rights it reads, and writes status
	Namespace string       // the operator's own
	CacheDir  string       // keeps fetched and compiled modules between runs; empty: nothing is kept
	Log       logr.Logger
	Now       func() time.Time

	// Held counts the objects with a hold, by resource and namespace.
	Held func() map[Place]int

	// Absent tells whether a kind is not served, asked anew.
	Absent func(context.Context, schema.GroupKind) (bool, error)

	// Serves tells whether discovery has seen a resource, and whether its objects are
	// in namespaces.
	Serves func(schema.GroupResource) (served, namespaced bool)

	// Tell raises an event about a policy or a module.
	Tell func(about *corev1.ObjectReference, kind, reason, message string)

	// Networks are those beyond the public ones to which Finalizers of namespaces may
	// grant requests: they are sent from where the operator is, which may be where
	// who writes Finalizers could not send any.
	Networks []netip.Prefix

	// Egress says from where modules are fetched; see source.Config.Network.
	Egress egress.Config

	// DisableTenantModules has no PolicyModule fetched or compiled. Policies and
	// finalizers that name one are not ready.
	DisableTenantModules bool

	// Quota bounds the modules that are fetched and compiled.
	Quota Quota

	// CheckGrants says what is wrong with grants, if anything is.
	CheckGrants func(policies.Grants) error

	// Progress says how a finalizer gets on, by the UID of its resource.
	Progress func(types.UID) Progress

	// Alone reports whether it is known that there is no other collector where there
	// should be one.
	Alone func() bool

	// Only reports whether this is known to be the cluster's only collector; may be nil.
	Only func() bool

	// Source is where resources are read from, and what they name; nil: from the
	// cluster.
	Source client.Reader

	// Given returns the files of a module that are to be taken in place of what its
	// resource says; may be nil. The module is called as in Policy.Module.
	Given func(module string) ([]source.File, bool)

	// Sandbox says how modules are compiled and evaluated, in worker processes.
	Sandbox worker.Config

	// Compiler takes the place of the sandbox, for tests.
	Compiler modulestore.Compiler

	// Veto is nil where there is no other collector to be kept from anything.
	Veto *Veto

	Leads    func() bool // only who leads writes status
	OnChange func()      // is called after each new set
}

// Place is a resource in one namespace, or "" for what is in none.
type Place struct {
	Resource  schema.GroupResource
	Namespace string
}

// Keeper keeps the set of policies in force. Its methods may be called
// concurrently.
type Keeper struct {
	options Options
	client  client.Client
	source  client.Reader
	cel     *cel.Env
	store   *modulestore.Store
	fetcher *source.Fetcher
	ledger  *ledger
	pool    *worker.Pool // nil in tests that bring a Compiler
	free    func()       // what the modules took, once the store has ended

	// For Run's goroutine alone:
	user   string // see whoAmI
	vetoed *build // whose vetoes it has been told to ask for
	placed *build // whose holds the API server has been told to place

	late      lateness // why they are not placed so
	unvetoed  error    // why the API server does not ask about what another collector deletes
	unrefused lateness // why it does not refuse deletes that ask for Orphan
	cleared   bool     // what a companion has placed is gone: see clear

	heard    atomic.Pointer[string]            // see Heard
	verified atomic.Pointer[verification]      // see Verify; nil before the first canary
	placing  atomic.Pointer[map[string]string] // finalizers that a webhook places, by placement

	set        atomic.Pointer[policies.Set]
	finalizers atomic.Pointer[[]*policies.Finalizer]
	named      atomic.Pointer[map[types.NamespacedName]struct{}] // ConfigMaps that modules come from
	pokes      chan struct{}                                     // capacity 1: something has changed
	moved      chan struct{}                                     // capacity 1: a finalizer got on

	mu     sync.Mutex // covers what follows
	counts map[string]map[string]int64
	faces  map[types.UID]string // of our resources, see face
	unseen map[string]unseen    // see Withheld

	limited map[string]time.Time // when that was noted, see Limited

	states, behind map[string]struct{} // see UpTo: those that were in force, and those that were not yet
}

// New returns a Keeper without a set. It talks to no API server yet.
func New(o Options) (*Keeper, error) {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return nil, fmt.Errorf("make scheme: %w", err)
		}
	}
	httpClient, err := rest.HTTPClientFor(o.Config)
	if err != nil {
		return nil, fmt.Errorf("make client for policies: %w", err)
	}
	k := &Keeper{options: o, pokes: make(chan struct{}, 1), moved: make(chan struct{}, 1), counts: map[string]map[string]int64{}, faces: map[types.UID]string{}, unseen: map[string]unseen{}, limited: map[string]time.Time{}, ledger: newLedger(o.Quota)}
	k.states, k.behind = map[string]struct{}{}, map[string]struct{}{}
	if k.client, err = newClient(o.Config, httpClient, scheme); err != nil {
		return nil, fmt.Errorf("make client for policies: %w", err)
	}
	if k.source = o.Source; o.Source == nil {
		k.source = k.client
	}
	if k.cel, err = celEnvironment(); err != nil {
		return nil, err
	}
	if err := k.newStore(); err != nil {
		return nil, err
	}
	k.poke()
	return k, nil
}

// newStore makes the store, and what it fetches and compiles with.
func (k *Keeper) newStore() (err error) {
	fetch := source.Config{Network: k.options.Egress}
	if k.options.CacheDir != "" {
		fetch.CacheDir = filepath.Join(k.options.CacheDir, "fetched")
	}
	if k.fetcher, err = source.New(fetch); err != nil {
		return err
	}
	compiler, free := k.options.Compiler, k.fetcher.Close
	if compiler == nil {
		pool, err := worker.New(k.sandbox())
		if err != nil {
			return err
		}
		k.pool, compiler, free = pool, workers.Compiler{Pool: pool}, func() {
			pool.Close()
			k.fetcher.Close()
		}
	}
	k.free = free
	k.store = modulestore.New(modulestore.Options{Compiler: compiler, Fetch: k.fetch, Now: k.options.Now})
	return nil
}

// sandbox is how workers are started.
func (k *Keeper) sandbox() worker.Config {
	c := k.options.Sandbox
	c.CacheDir, c.Log = k.options.CacheDir, k.options.Log
	return c
}

// newClient returns a client that reads live. Its types are mapped as they are
// asked for, since they may not be served yet.
func newClient(config *rest.Config, httpClient *http.Client, scheme *runtime.Scheme) (client.Client, error) {
	return client.New(config, client.Options{HTTPClient: httpClient, Scheme: scheme})
}

// Policies returns the set in force; nil until it is known.
func (k *Keeper) Policies() *policies.Set { return k.set.Load() }

// Apply listens to what is watched, for whatever policies are made of.
func (k *Keeper) Apply(events ...graph.Event) {
	for _, e := range events {
		if k.concerns(e) {
			k.poke()
		}
	}
}

func (k *Keeper) concerns(e graph.Event) bool {
	switch e := e.(type) {
	case graph.Seen:
		return k.makes(e.Object) && k.differs(e.Object)
	case graph.Deleted:
		k.differs(graph.Object{UID: e.Object.UID})
		return k.makes(e.Object)
	case graph.Relisted:
		return e.Kind.Group == v1alpha1.GroupVersion.Group
	case graph.TypeGone:
		return e.Kind.Group == v1alpha1.GroupVersion.Group
	default:
		return false
	}
}

// makes reports whether an object is a resource that policies are made of. A ConfigMap
// that a module comes from is fetched again, and changes nothing else.
func (k *Keeper) makes(o graph.Object) bool {
	if o.Kind.Group == v1alpha1.GroupVersion.Group {
		return true
	}
	if named := k.named.Load(); named != nil && o.Kind.Kind == "ConfigMap" && o.Kind.Group == "" {
		key := types.NamespacedName{Namespace: o.Namespace, Name: o.Name}
		if _, is := (*named)[key]; is {
			k.store.ConfigMapChanged(key)
			return k.ledger.forget(key) // it may be within the quota now
		}
	}
	return false
}

// differs reports whether one of our resources is another than when it was seen last,
// but for its status, which we write ourselves. Of what has no generation that can't be
// told.
func (k *Keeper) differs(o graph.Object) bool {
	face := fmt.Sprint(o.Generation, o.Terminating, o.Finalizers)
	k.mu.Lock()
	defer k.mu.Unlock()
	if o.Kind.Group != v1alpha1.GroupVersion.Group {
		delete(k.faces, o.UID)
		return true
	}
	was, ok := k.faces[o.UID]
	k.faces[o.UID] = face
	return !ok || was != face || o.Generation == 0
}

// TypesChanged looks anew, since the types of policies may have come or gone.
func (k *Keeper) TypesChanged() { k.poke() }

func (k *Keeper) poke() { signal(k.pokes) }

// Moved has status written soon: a finalizer got on, or got stuck.
func (k *Keeper) Moved() { signal(k.moved) }

// signal has whoever waits at a channel of capacity 1 look, now or later.
func signal(to chan struct{}) {
	select {
	case to <- struct{}{}:
	default:
	}
}
