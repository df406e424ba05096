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

// dropReferences takes references off by UID where the type can do that. It
// can't where the type refuses it (G-56), or where another reference with the
// same UID has to stay: then the whole list is replaced. Either is done under
// the judged resourceVersion, since a reference may have been put right since
// it was judged; but for an owner's leave, which is taken by UID alone, or of
// what the object is by then.
func (a *Actor) dropReferences(ctx context.Context, d decide.DropReferences) (Result, error) {
	t, err := a.target(d.Object)
	if err != nil {
		return Failed, err
	}
	if d.Object.Owners, err = t.allReferences(ctx); err != nil {
		return t.result("read owner references of", err)
	}
	kept, dropped := split(d.Object.Owners, d.References)
	if len(dropped) == 0 {
		return Already, nil
	}
	if _, refused := a.whole.Load(t.resource.GroupResource()); !refused && !shared(kept, dropped) {
		p := patch{UID: t.UID, ResourceVersion: t.ResourceVersion, OwnerReferences: removals(dropped)}
		if d.Leave {
			p.ResourceVersion = ""
		}
		err := t.patch(ctx, types.StrategicMergePatchType, p)
		if !apierrors.IsUnsupportedMediaType(err) {
			return t.result("drop owner references of", err)
		}
		a.whole.Store(t.resource.GroupResource(), struct{}{})
	}
	err = t.replaceReferences(ctx, kept)
	if d.Leave && apierrors.IsConflict(err) {
		return t.leave(ctx, d.References)
	}
	return t.result("drop owner references of", err)
}

// leave takes an owner's leave of an object that somebody else writes all the time, and
// whose references can only be written as a whole: they are read until a write of them
// comes first. Only the references that were judged go, as they were.
func (t target) leave(ctx context.Context, references []metav1.OwnerReference) (Result, error) {
	result := Done
	err := retry.RetryOnConflict(finalizerBackoff, func() error {
		live, err := t.client.Get(ctx, t.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if live.ResourceVersion == "" {
			return errors.New("it was read without a resourceVersion to insist on")
		}
		kept, dropped := split(live.OwnerReferences, references)
		if live.UID != t.UID || len(dropped) == 0 {
			result = Already
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
		return Already, nil
	}
	return t.result("unblock owner of", t.replaceReferences(ctx, refs))
}

// allReferences returns all owner references of an object, which the graph may not have
// kept: a list that lacks some must not be written back.
func (t target) allReferences(ctx context.Context) ([]metav1.OwnerReference, error) {
	if !t.Truncated {
		return t.Owners, nil
	}
	live, err := t.client.Get(ctx, t.Name, metav1.GetOptions{})
	if err == nil && (live.UID != t.UID || live.ResourceVersion != t.ResourceVersion) {
		err = apierrors.NewConflict(t.resource.GroupResource(), t.Name, errors.New("it has changed since"))
	}
	if err != nil {
		return nil, err
	}
	return live.OwnerReferences, nil
}

// replaceReferences writes the whole list, which therefore has to be made from
// the very resourceVersion that it insists on.
func (t target) replaceReferences(ctx context.Context, refs []metav1.OwnerReference) error {
	p := patch{UID: t.UID, ResourceVersion: t.ResourceVersion, OwnerReferences: refs}
	if len(refs) == 0 {
		p.OwnerReferences = null
	}
	return t.patch(ctx, types.MergePatchType, p)
}

// split parts a list of references into those to keep and those to drop. Both lists may
// be long.
func split(refs, drop []metav1.OwnerReference) (kept, dropped []metav1.OwnerReference) {
	lost := make(map[content]struct{}, len(drop))
	for _, ref := range drop {
		lost[contentOf(ref)] = struct{}{}
	}
	for _, ref := range refs {
		if _, ok := lost[contentOf(ref)]; ok {
			dropped = append(dropped, ref)
			continue
		}
		kept = append(kept, ref)
	}
	return kept, dropped
}

// content is what a reference says, to compare it by.
type content struct {
	ref                       metav1.OwnerReference // without pointers
	hasController, controller bool
	hasBlock, blocks          bool
}

func contentOf(ref metav1.OwnerReference) content {
	c := content{
		hasController: ref.Controller != nil, controller: ptr.Deref(ref.Controller, false),
		hasBlock: ref.BlockOwnerDeletion != nil, blocks: ptr.Deref(ref.BlockOwnerDeletion, false),
	}
	ref.Controller, ref.BlockOwnerDeletion = nil, nil
	c.ref = ref
	return c
}

// shared reports whether a UID is in both lists.
func shared(a, b []metav1.OwnerReference) bool {
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

// removal is an entry of a strategic merge patch that takes one away (G-55).
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

// namesField reports whether err is about a field of the object.
func namesField(err error, field string) bool {
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
