// Package loader assembles a module store: what fetches modules, the sandbox that compiles
// and runs them, and the Store between the two.
package loader

import (
	"context"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modulestore"
	"github.com/gleaner-dev/gleaner/operator/modulestore/fetch"
	"github.com/gleaner-dev/gleaner/operator/modulestore/workers"
	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/source/egress"
	"github.com/gleaner-dev/gleaner/policies/worker"
)

// Options configure a Loader.
type Options struct {
	Reader   client.Reader // of ConfigMaps and Secrets that modules come from
	Egress   egress.Config // see source.Config.Network
	CacheDir string        // keeps fetched and compiled modules between runs; empty: nothing is kept
	Sandbox  worker.Config // its CacheDir and Log are set from here
	Log      logr.Logger
	Now      func() time.Time // at which settings are validated; nil: time.Now
	Trust    fetch.Trust

	Quota                modulestore.Quota
	DisableTenantModules bool

	// Override returns the files to use instead of what a module's resource says; see
	// fetch.Fetcher. Nil: none.
	Override func(module string) ([]source.File, bool)

	// Compiler replaces the sandbox, for tests.
	Compiler modulestore.Compiler
}

// Loader is a Store with its fetcher and sandbox.
type Loader struct {
	Store   *modulestore.Store
	Sandbox *worker.Pool // nil if Options.Compiler replaces it

	free func()
}

// New returns a Loader, which loads nothing until Run is called.
func New(o Options) (*Loader, error) {
	config := source.Config{Network: o.Egress}
	if o.CacheDir != "" {
		config.CacheDir = filepath.Join(o.CacheDir, "fetched")
	}
	sources, err := source.New(config)
	if err != nil {
		return nil, err
	}
	l := &Loader{free: sources.Close}
	compiler := o.Compiler
	if compiler == nil {
		sandbox := o.Sandbox
		sandbox.CacheDir, sandbox.Log = o.CacheDir, o.Log
		if l.Sandbox, err = worker.New(sandbox); err != nil {
			sources.Close()
			return nil, err
		}
		compiler, l.free = workers.Compiler{Pool: l.Sandbox}, func() {
			l.Sandbox.Close()
			sources.Close()
		}
	}
	fetcher := &fetch.Fetcher{Reader: o.Reader, Source: sources, Log: o.Log, Trust: o.Trust, Override: o.Override}
	l.Store = modulestore.New(modulestore.Options{
		Compiler: compiler, Fetch: fetcher.Fetch, Now: o.Now, Quota: o.Quota, DisableTenantModules: o.DisableTenantModules,
	})
	return l, nil
}

// Run loads modules until ctx ends, and frees everything then.
func (l *Loader) Run(ctx context.Context) error {
	defer l.free()
	return l.Store.Run(ctx)
}

// Start runs in the background. Stop ends that and waits until everything is freed; it
// may be called more than once.
func (l *Loader) Start(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { _ = l.Run(ctx) }) // its only end is that of ctx
	return func() {
		cancel()
		running.Wait()
	}
}

// Apply implements watch.Sink: a module is fetched again when its ConfigMap changes.
func (l *Loader) Apply(events ...graph.Event) {
	for _, e := range events {
		switch e := e.(type) {
		case graph.Seen:
			l.changed(e.Object)
		case graph.Deleted:
			l.changed(e.Object)
		}
	}
}

func (l *Loader) changed(o graph.Object) {
	if o.Kind.Kind == "ConfigMap" && o.Kind.Group == "" {
		l.Store.ConfigMapChanged(types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	}
}
