package finalize

import (
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// live does what is to be done about an object that is not being deleted.
func (v *visitor) live(ctx context.Context, carries bool) time.Duration {
	switch {
	case !v.f.reaches(v.key.namespace) || !v.f.wants(carries):
		return 0
	case carries:
		return v.release(ctx, "its finalizer's resource is deleted (onRemoval: Release)")
	case v.exempt(v.key.namespace):
		return 0
	}
	meant, err := v.meant(ctx)
	switch {
	case err != nil:
		return v.postpone(ctx, Note{Reason: Attached, Message: "whether it is for the object is not known", Err: err})
	case !meant || v.namespace.Terminating:
		return 0
	}
	written, err := v.write(ctx, func(o metav1.Object) (map[string]any, error) {
		if o.GetDeletionTimestamp() != nil || slices.Contains(o.GetFinalizers(), v.entry) {
			return nil, nil
		}
		return map[string]any{"finalizers": append(slices.Clone(o.GetFinalizers()), v.entry)}, nil
	})
	n := Note{Finalizer: v.f.Finalizer, Object: graph.ObjectOf(v.resource.GroupVersionKind(), v.object), Reason: Attached, Err: err}
	switch {
	case errors.Is(err, errGone):
	case err != nil:
		return v.postpone(ctx, n)
	case written:
		v.Note(n)
	}
	return 0
}

// postpone tries again later to write to an object that is not being deleted, which
// nobody waits for. It is told once: it may be so of all objects of a resource.
func (v *visitor) postpone(ctx context.Context, n Note) time.Duration {
	if v.over(ctx) {
		return lookAgain
	}
	told := v.retries.NumRequeues(v.key) != 0
	again := v.retries.When(v.key)
	if told || v.object == nil {
		v.Log.V(1).Info("Could not write a finalizer", "finalizer", v.f.String(), "object", v.key.String(), "error", n.Err.Error())
		return again
	}
	n.Finalizer, n.Object = v.f.Finalizer, graph.ObjectOf(v.resource.GroupVersionKind(), v.object)
	n.Until = v.Now().Add(again)
	v.Note(n)
	return again
}
