// Package act carries out plans: it writes to the API server, each write with
// the preconditions that keep it from doing what was not decided.
//
// It decides nothing. A write that finds the object other than it was judged
// is not made, and says so; the precondition is never dropped to get it
// through (defect 3.2).
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
	"github.com/gleaner-dev/gleaner/operator/memo"
	"github.com/gleaner-dev/gleaner/operator/statekey"
)

// Result is what became of a write.
type Result string

// The results of writes. Failed is the zero Result, and comes with an error.
const (
	Failed  Result = ""
	Done    Result = "Done"
	Already Result = "AlreadyGone" // the object, or what was to be taken off it, is not there any more
	Changed Result = "Changed"     // the object is other than it was judged: nothing was written
	DryRun  Result = "DryRun"      // nothing was written, since that was not wanted
)

// Actor carries out actions. Its methods may be called concurrently.
type Actor struct {
	client  metadata.Interface
	catalog func() *catalog.Catalog
	keys    func() (statekey.Keys, error) // sign what is remembered
	dryRun  bool

	// whole are the types that take no strategic merge patch, as custom
	// resources do: their references are patched as a whole list.
	whole sync.Map
}

// New returns an Actor. With dryRun it writes nothing.
func New(client metadata.Interface, types func() *catalog.Catalog, keys func() (statekey.Keys, error), dryRun bool) *Actor {
	return &Actor{client: client, catalog: types, keys: keys, dryRun: dryRun}
}

// Do carries out one action. A nil action is done.
func (a *Actor) Do(ctx context.Context, action decide.Action) (Result, error) {
	if action == nil {
		return Done, nil
	}
	if a.dryRun {
		return DryRun, nil
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
	case decide.Remember:
		return a.remember(ctx, action)
	case decide.Forget:
		return a.annotate(ctx, action.Object, nil)
	default:
		return Failed, fmt.Errorf("carry out %T: no such action", action)
	}
}

// target is an object with the client and the name to reach it by.
type target struct {
	graph.Object
	resource schema.GroupVersionResource
	client   metadata.ResourceInterface
}

// target finds the version to write by anew each time, since the one that the
// object was seen by may not be served any more (defect 3.5).
//
// Every write insists on a UID and a resourceVersion, so an object that has
// none is not written to.
func (a *Actor) target(o graph.Object) (target, error) {
	if o.UID == "" || o.ResourceVersion == "" {
		return target{}, fmt.Errorf("write to %s %s/%s: it has no UID or no resourceVersion to insist on", o.Kind.GroupKind(), o.Namespace, o.Name)
	}
	resource, ok := a.catalog().Preferred(o.Kind.GroupKind())
	if !ok {
		return target{}, fmt.Errorf("reach %s %s/%s: its type is not served", o.Kind.GroupKind(), o.Namespace, o.Name)
	}
	return target{o, resource.Version, a.client.Resource(resource.Version).Namespace(o.Namespace)}, nil
}

// result sorts the API server's answer to a write.
func (t target) result(verb string, err error) (Result, error) {
	switch {
	case err == nil:
		return Done, nil
	case catalog.Denies(err, t.resource.GroupResource(), t.Name):
		return Already, nil
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

// patch is the metadata of a patch. A UID other than the object's is refused
// by the API server, and so is another resourceVersion.
type patch struct {
	UID             types.UID `json:"uid"`
	ResourceVersion string    `json:"resourceVersion,omitempty"`
	OwnerReferences any       `json:"ownerReferences,omitempty"`
	Finalizers      any       `json:"finalizers,omitempty"`

	Annotations map[string]*string `json:"annotations,omitempty"` // nil takes one off
}

// null takes a whole list off an object.
var null = json.RawMessage("null")

func (t target) patch(ctx context.Context, how types.PatchType, p patch) error {
	body, err := json.Marshal(map[string]patch{"metadata": p})
	if err != nil {
		return err
	}
	_, err = t.client.Patch(ctx, t.Name, how, body, metav1.PatchOptions{})
	if apierrors.IsInvalid(err) && p.UID != "" && namesField(err, "metadata.uid") {
		return apierrors.NewConflict(t.resource.GroupResource(), t.Name, err) // another object by that name (G-55)
	}
	return err
}

// remember signs a memo and writes it onto an object.
func (a *Actor) remember(ctx context.Context, action decide.Remember) (Result, error) {
	keys, missing := a.keys()
	text, err := action.Memo.Sign(keys)
	if errors.Is(err, statekey.ErrNoKey) && missing != nil {
		err = missing
	}
	if err != nil {
		return Failed, fmt.Errorf("remember the state of %s %s/%s: %w", action.Object.Kind.Kind, action.Object.Namespace, action.Object.Name, err)
	}
	return a.annotate(ctx, action.Object, &text)
}

// annotate writes a memo onto an object, or takes it off.
func (a *Actor) annotate(ctx context.Context, o graph.Object, text *string) (Result, error) {
	t, err := a.target(o)
	if err != nil {
		return Failed, err
	}
	return t.result("annotate", t.patch(ctx, types.MergePatchType, patch{
		UID: t.UID, ResourceVersion: t.ResourceVersion, Annotations: map[string]*string{memo.Annotation: text},
	}))
}

// finalizerBackoff is for taking one finalizer off an object that others
// change all the time (G-57).
var finalizerBackoff = wait.Backoff{Steps: 4, Duration: 10 * time.Millisecond, Factor: 5, Jitter: 0.1}

// removeFinalizer takes off the last finalizer blindly, under the judged
// resourceVersion. Where there are others it has to read them first. A hold comes off
// an object only as it was judged: a second DELETE may have changed since what becomes
// of its dependents. Only beside another collector that is left to itself.
func (a *Actor) removeFinalizer(ctx context.Context, r decide.RemoveFinalizer) (Result, error) {
	t, err := a.target(r.Object)
	if err != nil {
		return Failed, err
	}
	if t.only(r.Finalizer) {
		err := t.patch(ctx, types.MergePatchType, patch{UID: t.UID, ResourceVersion: t.ResourceVersion, Finalizers: null})
		return t.result("remove finalizer of", err)
	}
	result := Done
	err = retry.RetryOnConflict(finalizerBackoff, func() error {
		live, err := t.client.Get(ctx, t.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if live.ResourceVersion == "" {
			return fmt.Errorf("it was read without a resourceVersion to insist on")
		}
		kept, found := without(live.Finalizers, r.Finalizer)
		switch {
		case live.UID != t.UID || !found:
			result = Already
			return nil
		case r.Finalizer == graph.Hold && !r.Regardless && live.ResourceVersion != t.ResourceVersion:
			result = Changed
			return nil
		}
		p := patch{UID: t.UID, ResourceVersion: live.ResourceVersion, Finalizers: kept}
		if len(kept) == 0 {
			p.Finalizers = null
		}
		return t.patch(ctx, types.MergePatchType, p)
	})
	if err != nil {
		return t.result("remove finalizer of", err)
	}
	return result, nil
}

// addFinalizer puts one more finalizer at the end of those that there are.
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

// only reports whether a finalizer is the only one that the object has.
func (t target) only(finalizer string) bool {
	for other, on := range map[string]bool{
		metav1.FinalizerDeleteDependents: t.Foreground, metav1.FinalizerOrphanDependents: t.Orphan, graph.Hold: t.Held,
	} {
		if on && other != finalizer {
			return false
		}
	}
	return !t.OtherFinalizers
}

// without returns the list without one entry, in its order, and whether it was
// in there.
func without(list []string, entry string) (rest []string, found bool) {
	for _, e := range list {
		if e == entry {
			found = true
			continue
		}
		rest = append(rest, e)
	}
	return rest, found
}
