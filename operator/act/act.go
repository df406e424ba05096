// Package act carries out plans: it writes to the API server, with preconditions
// that restrict each write to what was decided.
//
// It decides nothing. If the object has changed since the decision, nothing is
// written and the result is Changed. A precondition is never dropped to make a write
// succeed (defect 3.2).
package act

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/retry"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/statekey"
)

// Result is the result of a write.
type Result string

// The results of writes. Failed is the zero Result, and comes with an error.
const (
	Failed      Result = ""
	Done        Result = "Done"
	AlreadyGone Result = "AlreadyGone" // the object, or what was to be removed from it, no longer exists
	Changed     Result = "Changed"     // the object has changed since the decision: nothing was written
	DryRun      Result = "DryRun"      // nothing was written because of a dry run
)

// Actor carries out actions. Its methods may be called concurrently.
type Actor struct {
	client  metadata.Interface
	catalog func() *catalog.Catalog
	keys    func() (statekey.Keys, error) // sign state annotations

	// OnStateSaved receives an object as the API server has returned it after its state was
	// saved, before Do returns. Optional; it must be set before first use.
	OnStateSaved func(graph.Object, *metav1.PartialObjectMetadata)

	// noStrategicMerge contains the types that do not support strategic merge patch, such as
	// custom resources: their owner references are replaced as a whole list.
	noStrategicMerge sync.Map
}

// New returns an Actor.
func New(client metadata.Interface, types func() *catalog.Catalog, keys func() (statekey.Keys, error)) *Actor {
	return &Actor{client: client, catalog: types, keys: keys}
}

// Do carries out one action. For nil, it returns Done.
func (a *Actor) Do(ctx context.Context, action decide.Action) (Result, error) {
	if action == nil {
		return Done, nil
	}
	switch action := action.(type) {
	case decide.Delete:
		return a.delete(ctx, action)
	case decide.Propagate:
		return a.delete(ctx, decide.Delete{Object: action.Object, Propagation: action.Propagation})
	case decide.DropReferences:
		return a.dropReferences(ctx, action)
	case decide.RemoveFinalizer:
		return a.removeFinalizer(ctx, action)
	case decide.AddFinalizer:
		return a.addFinalizer(ctx, action)
	case decide.Unblock:
		return a.unblock(ctx, action)
	case decide.SaveState:
		return a.saveState(ctx, action)
	case decide.RemoveState:
		return a.writeState(ctx, action.Object, nil)
	default:
		return Failed, fmt.Errorf("carry out %T: no such action", action)
	}
}

// target is an object with its client and resource.
type target struct {
	graph.Object
	resource schema.GroupVersionResource
	client   metadata.ResourceInterface
}

// target looks up the version for each write, since the one that the object was
// watched with may no longer be served (defect 3.5).
//
// Every write has a UID and a resourceVersion as preconditions, so an object without
// them is not written to.
func (a *Actor) target(o graph.Object) (target, error) {
	if o.UID == "" || o.ResourceVersion == "" {
		return target{}, fmt.Errorf("write to %s %s/%s: it has no UID or no resourceVersion for preconditions", o.Kind.GroupKind(), o.Namespace, o.Name)
	}
	resource, ok := a.catalog().Preferred(o.Kind.GroupKind())
	if !ok {
		return target{}, fmt.Errorf("reach %s %s/%s: its type is not served", o.Kind.GroupKind(), o.Namespace, o.Name)
	}
	return target{o, resource.Version, a.client.Resource(resource.Version).Namespace(o.Namespace)}, nil
}

// result converts the API server's response to a write.
func (t target) result(verb string, err error) (Result, error) {
	switch {
	case err == nil:
		return Done, nil
	case catalog.ConfirmsNotFound(err, t.resource.GroupResource(), t.Name):
		return AlreadyGone, nil
	case apierrors.IsConflict(err):
		return Changed, nil
	default:
		return Failed, fmt.Errorf("%s %s %s/%s: %w", verb, t.resource.Resource, t.Namespace, t.Name, err)
	}
}

func (a *Actor) delete(ctx context.Context, d decide.Delete) (Result, error) {
	t, err := a.target(d.Object)
	if err != nil {
		return Failed, err
	}
	return t.result("delete", t.client.Delete(ctx, t.Name, metav1.DeleteOptions{
		Preconditions:      &metav1.Preconditions{UID: &t.UID, ResourceVersion: &t.ResourceVersion},
		PropagationPolicy:  &d.Propagation,
		GracePeriodSeconds: d.GracePeriodSeconds,
	}))
}

// patch is the metadata of a patch. The API server rejects a UID or resourceVersion
// other than the object's.
type patch struct {
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	OwnerReferences any       `json:"ownerReferences,omitempty"`
	Finalizers      any       `json:"finalizers,omitempty"`

	Annotations map[string]*string `json:"annotations,omitempty"` // nil removes one
}

// null removes a whole list from an object.
var null = json.RawMessage("null")

func (t target) patch(ctx context.Context, patchType types.PatchType, p patch) error {
	_, err := t.patched(ctx, patchType, p)
	return err
}

// patched is like patch, and returns the object as it is afterwards.
func (t target) patched(ctx context.Context, patchType types.PatchType, p patch) (*metav1.PartialObjectMetadata, error) {
	body, err := json.Marshal(map[string]patch{"metadata": p})
	if err != nil {
		return nil, err
	}
	after, err := t.client.Patch(ctx, t.Name, patchType, body, metav1.PatchOptions{})
	if apierrors.IsInvalid(err) && p.UID != "" && hasFieldCause(err, "metadata.uid") {
		return nil, apierrors.NewConflict(t.resource.GroupResource(), t.Name, err) // another object with that name (G-55)
	}
	return after, err
}

// saveState signs the state and writes the state annotation of an object.
func (a *Actor) saveState(ctx context.Context, action decide.SaveState) (Result, error) {
	keys, keysErr := a.keys()
	text, err := action.State.Sign(keys)
	if errors.Is(err, statekey.ErrNoKey) && keysErr != nil {
		err = keysErr
	}
	if err != nil {
		return Failed, fmt.Errorf("save the state of %s %s/%s: %w", action.Object.Kind.Kind, action.Object.Namespace, action.Object.Name, err)
	}
	return a.writeState(ctx, action.Object, &text)
}

// writeState sets the state annotation of an object, or removes it if text is nil.
func (a *Actor) writeState(ctx context.Context, o graph.Object, text *string) (Result, error) {
	t, err := a.target(o)
	if err != nil {
		return Failed, err
	}
	after, err := t.patched(ctx, types.MergePatchType, patch{
		UID: t.UID, ResourceVersion: t.ResourceVersion, Annotations: map[string]*string{objectstate.Annotation: text},
	})
	if err == nil && text != nil && a.OnStateSaved != nil && after.UID == t.UID && after.ResourceVersion != "" {
		a.OnStateSaved(graph.ObjectOf(t.Kind, after), after)
	}
	return t.result("annotate", err)
}

// conflictBackoff is the backoff for conflicts while one finalizer is removed from an
// object that other clients change often (G-57).
var conflictBackoff = wait.Backoff{Steps: 4, Duration: 10 * time.Millisecond, Factor: 5, Jitter: 0.1}

// removeFinalizer removes a finalizer without a read, with the decision's resourceVersion as a
// precondition, if the others are known. If they are not, it reads them first. A hold is
// removed only from an object that has not changed since the decision: a second DELETE may
// have changed the propagation policy. Companion mode leaves that to the built-in
// garbage collector.
func (a *Actor) removeFinalizer(ctx context.Context, r decide.RemoveFinalizer) (Result, error) {
	t, err := a.target(r.Object)
	if err != nil {
		return Failed, err
	}
	if others, known := t.otherFinalizers(r.Finalizer); known {
		err := t.patch(ctx, types.MergePatchType, patch{UID: t.UID, ResourceVersion: t.ResourceVersion, Finalizers: listOrNull(others)})
		last := len(others) == 0 || r.Finalizer == graph.Hold && !r.IgnoreChanges
		if last || !apierrors.IsConflict(err) {
			return t.result("remove finalizer of", err)
		}
	}
	result := Done
	err = retry.RetryOnConflict(conflictBackoff, func() error {
		live, err := t.client.Get(ctx, t.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if live.ResourceVersion == "" {
			return fmt.Errorf("the response has no resourceVersion")
		}
		kept, found := withoutEntry(live.Finalizers, r.Finalizer)
		switch {
		case live.UID != t.UID || !found:
			result = AlreadyGone
			return nil
		case r.Finalizer == graph.Hold && !r.IgnoreChanges && live.ResourceVersion != t.ResourceVersion:
			result = Changed
			return nil
		}
		return t.patch(ctx, types.MergePatchType, patch{UID: t.UID, ResourceVersion: live.ResourceVersion, Finalizers: listOrNull(kept)})
	})
	if err != nil {
		return t.result("remove finalizer of", err)
	}
	return result, nil
}

// addFinalizer appends a finalizer to those of the object.
func (a *Actor) addFinalizer(ctx context.Context, f decide.AddFinalizer) (Result, error) {
	t, err := a.target(f.Object)
	if err != nil {
		return Failed, err
	}
	finalizers := []string{f.Finalizer}
	if t.OtherFinalizers || t.Foreground || t.Orphan {
		live, err := t.client.Get(ctx, t.Name, metav1.GetOptions{})
		if err != nil {
			return t.result("read finalizers of", err)
		}
		if live.UID != t.UID || live.ResourceVersion != t.ResourceVersion {
			return Changed, nil
		}
		finalizers = append(live.Finalizers, f.Finalizer)
	}
	err = t.patch(ctx, types.MergePatchType, patch{UID: t.UID, ResourceVersion: t.ResourceVersion, Finalizers: finalizers})
	return t.result("add finalizer to", err)
}

// otherFinalizers returns the object's finalizers except one. It returns false if they are
// not known: the graph keeps only that there are some besides its own and those of garbage
// collection. The order of two is not known either.
func (t target) otherFinalizers(finalizer string) (others []string, known bool) {
	for _, f := range []struct {
		name string
		on   bool
	}{
		{graph.Hold, t.Held}, {metav1.FinalizerDeleteDependents, t.Foreground}, {metav1.FinalizerOrphanDependents, t.Orphan},
	} {
		if f.on && f.name != finalizer {
			others = append(others, f.name)
		}
	}
	return others, !t.OtherFinalizers && len(others) <= 1
}

// listOrNull returns a list for a patch. An empty one is removed.
func listOrNull(list []string) any {
	if len(list) == 0 {
		return null
	}
	return list
}

// withoutEntry returns the list without one entry, and whether the list contained it.
func withoutEntry(list []string, entry string) (rest []string, found bool) {
	for _, e := range list {
		if e == entry {
			found = true
			continue
		}
		rest = append(rest, e)
	}
	return rest, found
}
