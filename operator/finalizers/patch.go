package finalizers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/retry"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

// writeBackoff is the backoff after conflicts with other writers.
var writeBackoff = wait.Backoff{Steps: 5, Duration: 10 * time.Millisecond, Factor: 4, Jitter: 0.1}

var (
	// errGone means that the object is deleted, or was replaced by another one.
	errGone = errors.New("object is gone")

	// errStopped means that the controller may no longer write.
	errStopped = &writer.StoppedError{Outcome: writer.Wait, Reason: "no longer the leader"}

	// errChanged means that a step has found the object changed since it was read.
	errChanged = errors.New("object has changed since it was read")
)

// patch patches the object's finalizers and annotations without overwriting concurrent
// changes. The function change returns the metadata to patch, given the live object; nil
// means no write. The result reports whether the object was written.
func (v *reconciler) patch(ctx context.Context, effect writer.Effect, change func(metav1.Object) (map[string]any, error)) (written bool, err error) {
	client := v.Client.Resource(v.resource.Version).Namespace(v.key.namespace)
	err = retry.RetryOnConflict(writeBackoff, func() error {
		if v.stopped(ctx) {
			return errStopped
		}
		if err := v.refresh(ctx, client); err != nil {
			return err
		}
		fields, err := change(v.latest)
		if fields == nil || err != nil {
			return err
		}
		err = v.write(ctx, client, effect, fields)
		written = err == nil
		return err
	})
	return written, err
}

// write patches the object's metadata, if the steps of the writer admit it.
func (v *reconciler) write(ctx context.Context, client metadata.ResourceInterface, effect writer.Effect, fields map[string]any) error {
	target := v.target()
	target.ResourceVersion = v.latest.GetResourceVersion()
	fields["uid"], fields["resourceVersion"] = v.key.uid, target.ResourceVersion
	body, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return err
	}
	v.latest = nil
	result, err := v.writer.Do(ctx, writer.Write{
		Origin: writer.Finalizers, Target: target, Effect: effect,
		Do: func(ctx context.Context) (act.Result, error) { return v.send(ctx, client, body) },
	})
	if err == nil && result == act.Changed {
		err = apierrors.NewConflict(v.resource.Version.GroupResource(), v.key.name, errChanged)
	}
	return err
}

// send sends a patch.
func (v *reconciler) send(ctx context.Context, client metadata.ResourceInterface, body []byte) (act.Result, error) {
	live, err := client.Patch(ctx, v.key.name, types.MergePatchType, body, metav1.PatchOptions{})
	switch {
	case err != nil && v.notFound(err):
		return act.AlreadyGone, errGone
	case apierrors.IsInvalid(err) && v.replaced(ctx, client):
		return act.AlreadyGone, errGone // replaced by another object of that name
	case apierrors.IsConflict(err):
		return act.Changed, err
	case err != nil:
		return act.Failed, err
	case live.UID != v.key.uid:
		return act.Failed, errors.New("response contains another object or none")
	}
	v.latest = live
	return act.Done, nil
}

// target returns the object for the steps of the writer.
func (v *reconciler) target() graph.Object {
	return graph.ObjectOf(v.resource.GroupVersionKind(), v.object)
}

// refresh reads the object's metadata if the known one is outdated.
func (v *reconciler) refresh(ctx context.Context, client metadata.ResourceInterface) error {
	if v.latest != nil {
		return nil
	}
	live, err := client.Get(ctx, v.key.name, metav1.GetOptions{})
	switch {
	case err != nil && v.notFound(err):
		return errGone
	case err != nil:
		return err
	case live.UID == "":
		return errors.New("response contains no object")
	case live.UID != v.key.uid:
		return errGone
	}
	v.latest = live
	return nil
}

// notFound reports whether the error means that the object does not exist.
func (v *reconciler) notFound(err error) bool {
	return catalog.ConfirmsNotFound(err, v.resource.Version.GroupResource(), v.key.name)
}

// replaced reports whether another object has the name now.
func (v *reconciler) replaced(ctx context.Context, client metadata.ResourceInterface) bool {
	live, err := client.Get(ctx, v.key.name, metav1.GetOptions{})
	return err == nil && live.UID != "" && live.UID != v.key.uid
}

// forceRelease removes the finalizer without a verdict.
func (v *reconciler) forceRelease(ctx context.Context, message string) time.Duration {
	return v.removeFinalizer(ctx, Outcome{Reason: Released, Message: message})
}

// removeFinalizer removes the finalizer.
func (v *reconciler) removeFinalizer(ctx context.Context, n Outcome) time.Duration {
	removed, err := v.patch(ctx, writer.Releases, func(o metav1.Object) (map[string]any, error) {
		finalizers := slices.Clone(o.GetFinalizers())
		if !slices.Contains(finalizers, v.entry) {
			return nil, nil
		}
		finalizers = slices.DeleteFunc(finalizers, func(f string) bool { return f == v.entry })
		patch := map[string]any{"finalizers": finalizers}
		if _, own := o.GetAnnotations()[objectstate.FinalizersAnnotation]; !own || !objectstate.Supported(v.key.kind.Group) {
			return patch, nil
		}
		text, err := objectstate.ReadFinalizers(o).With(v.entry, objectstate.FinalizerState{}, statekey.Keys{}) // no state to sign
		patch["annotations"] = map[string]*string{objectstate.FinalizersAnnotation: text}
		return patch, err
	})
	if err != nil && !errors.Is(err, errGone) {
		return v.finishWithError(ctx, n, fmt.Errorf("remove finalizer: %w", err))
	}
	n.Finalizer, n.Removed = v.f.Finalizer, removed
	n.Object = graph.ObjectOf(v.resource.GroupVersionKind(), v.object)
	if deleted := v.object.GetDeletionTimestamp(); deleted != nil {
		n.HeldFor = v.Now().Sub(deleted.Time)
	}
	v.removePending(v.key, removed)
	v.Record(n)
	return 0
}
