package finalizers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

// forceRelease removes the finalizer without a verdict.
func (v *reconciler) forceRelease(ctx context.Context, message string) time.Duration {
	return v.removeFinalizer(ctx, Outcome{Reason: Released, Message: message})
}

// removeFinalizer removes the finalizer.
func (v *reconciler) removeFinalizer(ctx context.Context, n Outcome) time.Duration {
	removed, err := v.patcher.patch(ctx, writer.Releases, func(o metav1.Object) (map[string]any, error) {
		finalizers := slices.Clone(o.GetFinalizers())
		if !slices.Contains(finalizers, v.entry) {
			return nil, nil
		}
		if err := v.checkUnchanged(o.GetResourceVersion()); err != nil {
			return nil, err
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
	if errors.Is(err, errChanged) {
		return v.handleAgain(ctx)
	}
	if err != nil && !errors.Is(err, errGone) {
		return v.finishWithError(ctx, n, fmt.Errorf("remove finalizer: %w", err))
	}
	n.Finalizer, n.Removed = v.f.Finalizer, removed
	n.Object = v.target()
	if deleted := v.object.GetDeletionTimestamp(); deleted != nil {
		n.HeldFor = v.Now().Sub(deleted.Time)
	}
	v.removePending(v.key, removed)
	v.Record(n)
	return 0
}
