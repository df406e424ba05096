package act

import (
	"context"
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// dropReferences removes references by UID with a strategic merge patch. If the type
// does not support that (G-56), or another reference with the same UID must stay, the
// whole list is replaced. The decision's resourceVersion is a precondition, since a
// reference may have been corrected meanwhile. Orphaning is the exception: its
// references are removed by UID alone, or from the object's latest version.
func (a *Actor) dropReferences(ctx context.Context, d decide.DropReferences) (Result, error) {
	t, err := a.target(d.Object)
	if err != nil {
		return Failed, err
	}
	if d.Object.Owners, err = t.allReferences(ctx); err != nil {
		return t.result("read owner references of", err)
	}
	kept, dropped := partition(d.Object.Owners, d.References)
	if len(dropped) == 0 {
		return AlreadyGone, nil
	}
	if _, refused := a.noStrategicMerge.Load(t.resource.GroupResource()); !refused && !shareUID(kept, dropped) {
		p := patch{UID: t.UID, ResourceVersion: t.ResourceVersion, OwnerReferences: removals(dropped)}
		if d.Orphan {
			p.ResourceVersion = ""
		}
		err := t.patch(ctx, types.StrategicMergePatchType, p)
		if !apierrors.IsUnsupportedMediaType(err) {
			return t.result("drop owner references of", err)
		}
		a.noStrategicMerge.Store(t.resource.GroupResource(), struct{}{})
	}
	err = t.replaceReferences(ctx, kept)
	if d.Orphan && apierrors.IsConflict(err) {
		return t.orphan(ctx, d.References)
	}
	return t.result("drop owner references of", err)
}

// orphan orphans an object that another client writes often, and whose references can
// only be replaced as a whole: it reads and writes them until there is no conflict. Only
// references that are identical to those of the decision are removed.
func (t target) orphan(ctx context.Context, references []metav1.OwnerReference) (Result, error) {
	result := Done
	err := retry.RetryOnConflict(conflictBackoff, func() error {
		live, err := t.client.Get(ctx, t.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if live.ResourceVersion == "" {
			return errors.New("the response has no resourceVersion")
		}
		kept, dropped := partition(live.OwnerReferences, references)
		if live.UID != t.UID || len(dropped) == 0 {
			result = AlreadyGone
			return nil
		}
		t.ResourceVersion = live.ResourceVersion
		return t.replaceReferences(ctx, kept)
	})
	if err != nil {
		return t.result("drop owner references of", err)
	}
	return result, nil
}

func (a *Actor) unblock(ctx context.Context, u decide.Unblock) (Result, error) {
	t, err := a.target(u.Object)
	if err != nil {
		return Failed, err
	}
	if u.Object.Owners, err = t.allReferences(ctx); err != nil {
		return t.result("read owner references of", err)
	}
	refs, found := make([]metav1.OwnerReference, len(u.Object.Owners)), false
	for i, ref := range u.Object.Owners {
		if graph.IDOf(ref.UID) == u.Owner && ptr.Deref(ref.BlockOwnerDeletion, false) {
			ref.BlockOwnerDeletion, found = ptr.To(false), true
		}
		refs[i] = ref
	}
	if !found {
		return AlreadyGone, nil
	}
	return t.result("unblock owner of", t.replaceReferences(ctx, refs))
}

// allReferences returns all owner references of an object. The graph may keep only some
// of them, and an incomplete list must not be written back.
func (t target) allReferences(ctx context.Context) ([]metav1.OwnerReference, error) {
	if !t.Truncated {
		return t.Owners, nil
	}
	live, err := t.client.Get(ctx, t.Name, metav1.GetOptions{})
	if err == nil && (live.UID != t.UID || live.ResourceVersion != t.ResourceVersion) {
		err = apierrors.NewConflict(t.resource.GroupResource(), t.Name, errors.New("it has changed since the decision"))
	}
	if err != nil {
		return nil, err
	}
	return live.OwnerReferences, nil
}

// replaceReferences replaces the whole list, which must come from the resourceVersion
// in the precondition.
func (t target) replaceReferences(ctx context.Context, refs []metav1.OwnerReference) error {
	p := patch{UID: t.UID, ResourceVersion: t.ResourceVersion, OwnerReferences: refs}
	if len(refs) == 0 {
		p.OwnerReferences = null
	}
	return t.patch(ctx, types.MergePatchType, p)
}

// partition divides a list of references into those to keep and those to drop. Both lists
// may be long.
func partition(refs, drop []metav1.OwnerReference) (kept, dropped []metav1.OwnerReference) {
	dropKeys := make(map[referenceKey]struct{}, len(drop))
	for _, ref := range drop {
		dropKeys[referenceKeyOf(ref)] = struct{}{}
	}
	for _, ref := range refs {
		if _, ok := dropKeys[referenceKeyOf(ref)]; ok {
			dropped = append(dropped, ref)
			continue
		}
		kept = append(kept, ref)
	}
	return kept, dropped
}

// referenceKey is a comparable copy of an owner reference.
type referenceKey struct {
	reference                 metav1.OwnerReference // without pointers
	hasController, controller bool
	hasBlock, block           bool
}

func referenceKeyOf(ref metav1.OwnerReference) referenceKey {
	c := referenceKey{
		hasController: ref.Controller != nil, controller: ptr.Deref(ref.Controller, false),
		hasBlock: ref.BlockOwnerDeletion != nil, block: ptr.Deref(ref.BlockOwnerDeletion, false),
	}
	ref.Controller, ref.BlockOwnerDeletion = nil, nil
	c.reference = ref
	return c
}

// shareUID reports whether a UID is in both lists.
func shareUID(a, b []metav1.OwnerReference) bool {
	uids := map[types.UID]struct{}{}
	for _, x := range a {
		uids[x.UID] = struct{}{}
	}
	for _, y := range b {
		if _, ok := uids[y.UID]; ok {
			return true
		}
	}
	return false
}

// removal is an entry of a strategic merge patch that deletes an owner reference (G-55).
type removal struct {
	Patch string    `json:"$patch"`
	UID   types.UID `json:"uid"`
}

func removals(refs []metav1.OwnerReference) []removal {
	list := make([]removal, len(refs))
	for i, ref := range refs {
		list[i] = removal{Patch: "delete", UID: ref.UID}
	}
	return list
}

// hasFieldCause reports whether a cause of err is about the field.
func hasFieldCause(err error, field string) bool {
	d := details(err)
	if d == nil {
		return false
	}
	for _, cause := range d.Causes {
		if cause.Field == field {
			return true
		}
	}
	return false
}

func details(err error) *metav1.StatusDetails {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return nil
	}
	return status.Status().Details
}
