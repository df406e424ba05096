// Package inuse keeps the resources of finalizers, archive policies among them, and of their
// modules, for as long as objects wait for them: it adds the finalizer v1alpha1.InUseFinalizer to them, and removes it once
// no object needs them any more. Deleting a namespace would otherwise delete them before
// the objects that wait for them.
package inuse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/policyset"
)

// interval is how often the objects that have a finalizer are looked at.
const interval = time.Second

// Options configure a Guard. All fields are required.
type Options struct {
	Client    client.Client
	Snapshots *policyset.Publisher
	Gate      *gate.Gate // only the leader writes
	Admission *latest.Value[admission.Status]

	// Carriers counts the objects that have a finalizer, by the UID of its resource;
	// counted is false if they were not counted since the resource was deleted.
	Carriers func(types.UID) (count int, counted bool)

	Log logr.Logger
}

// Guard keeps resources. Create it with New.
type Guard struct {
	options Options
	written map[types.UID]string // resourceVersions that were patched; for Run's goroutine
}

// New returns a Guard.
func New(o Options) *Guard { return &Guard{options: o, written: map[types.UID]string{}} }

// Run keeps resources while this replica leads, until ctx ends.
func (g *Guard) Run(ctx context.Context) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		snapshots := g.options.Snapshots.Changed()
		g.update(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-snapshots:
		case <-tick.C:
		}
	}
}

func (g *Guard) update(ctx context.Context) {
	s, state := g.options.Snapshots.Current(), g.options.Gate.State()
	if s == nil || !state.Leading {
		return
	}
	for f := range s.Served() {
		if err := g.guard(ctx, f, state.Term, s.Revision); err != nil && ctx.Err() == nil {
			g.options.Log.Error(err, "Could not protect the resource of a finalizer", "finalizer", f.Policy.String())
		}
	}
	g.forget(s)
	if err := g.guardModules(ctx, s); err != nil && ctx.Err() == nil {
		g.options.Log.Error(err, "Could not protect the modules of finalizers")
	}
}

// forget forgets resources that a snapshot does not have.
func (g *Guard) forget(s *policyset.Snapshot) {
	exists := map[types.UID]bool{}
	for f := range s.Served() {
		exists[f.Object.GetUID()] = true
	}
	for _, m := range s.Modules {
		exists[m.Object.GetUID()] = true
	}
	maps.DeleteFunc(g.written, func(uid types.UID, _ string) bool { return !exists[uid] })
}

// guard keeps the resource of a finalizer, and releases it once no object has the
// finalizer and it is no longer attached to new ones.
func (g *Guard) guard(ctx context.Context, f policyset.Served, term, revision uint64) error {
	if !f.Finalizer.Deleting {
		if f.Policy.Enforce {
			return g.set(ctx, f.Object, true)
		}
		return nil
	}
	installed, _ := g.options.Admission.Load()
	if _, mayAttach := installed.Failed[""]; mayAttach || installed.Term != term || installed.Revision != revision {
		return nil // it might still be attached
	}
	if count, counted := g.options.Carriers(f.Finalizer.UID); !counted || count != 0 {
		return nil
	}
	return g.set(ctx, f.Object, false)
}

// guardModules keeps the modules of finalizers in Enforce mode.
func (g *Guard) guardModules(ctx context.Context, s *policyset.Snapshot) error {
	used := map[string]bool{}
	for _, f := range s.Finalizers {
		used[f.Policy.Module] = used[f.Policy.Module] || f.Policy.Enforce
	}
	var all error
	for _, m := range s.Modules {
		if removed := m.Object.GetDeletionTimestamp() != nil; used[m.String()] && removed {
			continue // it is kept already, or it is too late
		}
		all = errors.Join(all, g.set(ctx, m.Object, used[m.String()]))
	}
	return all
}

// set adds the finalizer to a resource, or removes it, if the resource is still as it was
// read.
func (g *Guard) set(ctx context.Context, o client.Object, want bool) error {
	finalizers := slices.Clone(o.GetFinalizers())
	if slices.Contains(finalizers, v1alpha1.InUseFinalizer) == want || g.written[o.GetUID()] == o.GetResourceVersion() {
		return nil
	}
	if want {
		finalizers = append(finalizers, v1alpha1.InUseFinalizer)
	} else {
		finalizers = slices.DeleteFunc(finalizers, func(name string) bool { return name == v1alpha1.InUseFinalizer })
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion(), "finalizers": finalizers,
	}})
	if err != nil {
		return err
	}
	err = g.options.Client.Patch(ctx, o.DeepCopyObject().(client.Object), client.RawPatch(types.MergePatchType, body))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		g.options.Snapshots.Refresh() // it has changed
		return nil
	}
	if err != nil {
		return fmt.Errorf("write finalizer %s of %s: %w", v1alpha1.InUseFinalizer, o.GetName(), err)
	}
	g.written[o.GetUID()] = o.GetResourceVersion()
	g.options.Snapshots.Refresh()
	return nil
}
