package finalize

import (
	"bytes"
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
	"k8s.io/client-go/util/retry"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/memo"
)

// writeBackoff is for writing to an object that others change all the time.
var writeBackoff = wait.Backoff{Steps: 5, Duration: 10 * time.Millisecond, Factor: 4, Jitter: 0.1}

// errGone is an object that is not there any more, or has become another one.
var errGone = errors.New("it is gone")

// write changes the object's finalizers and annotations, and nothing that anybody
// else has written meanwhile. The change says what is to be patched, of the object as
// it is; nil: nothing.
func (v *visitor) write(ctx context.Context, change func(metav1.Object) (map[string]any, error)) error {
	client := v.Client.Resource(v.resource.Version).Namespace(v.key.namespace)
	var current metav1.Object = v.object
	return retry.RetryOnConflict(writeBackoff, func() error {
		if current == nil {
			live, err := client.Get(ctx, v.key.name, metav1.GetOptions{})
			if err != nil && catalog.Denies(err, v.resource.Version.GroupResource(), v.key.name) || err == nil && live.UID != v.key.uid {
				return errGone
			}
			if err != nil {
				return err
			}
			current = live
		}
		patch, err := change(current)
		if patch == nil || err != nil {
			return err
		}
		patch["uid"], patch["resourceVersion"] = v.key.uid, current.GetResourceVersion()
		current = nil
		body, err := json.Marshal(map[string]any{"metadata": patch})
		if err != nil {
			return err
		}
		_, err = client.Patch(ctx, v.key.name, types.MergePatchType, body, metav1.PatchOptions{})
		switch {
		case err != nil && catalog.Denies(err, v.resource.Version.GroupResource(), v.key.name):
			return errGone
		case apierrors.IsInvalid(err) && v.changed(ctx):
			return errGone // another object by that name
		}
		return err
	})
}

// changed reports whether there is another object by the name now.
func (v *visitor) changed(ctx context.Context) bool {
	live, err := v.Client.Resource(v.resource.Version).Namespace(v.key.namespace).Get(ctx, v.key.name, metav1.GetOptions{})
	return err == nil && live.UID != v.key.uid
}

// release takes the finalizer off although the module has not said so.
func (v *visitor) release(ctx context.Context, reason Reason, message string) time.Duration {
	return v.letGo(ctx, Note{Reason: reason, Message: message})
}

// letGo takes the finalizer off.
func (v *visitor) letGo(ctx context.Context, n Note) time.Duration {
	err := v.write(ctx, func(o metav1.Object) (map[string]any, error) {
		finalizers := slices.Clone(o.GetFinalizers())
		if !slices.Contains(finalizers, v.entry) {
			return nil, nil
		}
		finalizers = slices.DeleteFunc(finalizers, func(f string) bool { return f == v.entry })
		patch := map[string]any{"finalizers": finalizers}
		if _, ours := o.GetAnnotations()[Annotation]; !ours || !memo.Fits(v.key.kind.Group) {
			return patch, nil
		}
		text, err := notebookOf(o).with(v.entry, memory{})
		patch["annotations"] = map[string]*string{Annotation: text}
		return patch, err
	})
	if err != nil && !errors.Is(err, errGone) {
		return v.troubled(fmt.Errorf("take the finalizer off: %w", err))
	}
	n.Finalizer, n.Taken = v.f.Finalizer, err == nil
	n.Object = graph.ObjectOf(v.resource.GroupVersionKind(), v.object)
	if deleted := v.object.GetDeletionTimestamp(); deleted != nil {
		n.Lasted = v.Now().Sub(deleted.Time)
	}
	v.drop(v.key, err == nil)
	v.Note(n)
	return 0
}

// remember keeps a state, if that is another than before.
func (v *visitor) remember(ctx context.Context, state json.RawMessage) error {
	if len(state) == 0 || bytes.Equal(compact(state), compact(v.memory.State)) {
		return nil
	}
	v.memory = memory{Attempt: v.track.attempt, State: state}
	return v.writeMemory(ctx)
}

func compact(state json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, state) != nil {
		return state
	}
	return b.Bytes()
}

// fail remembers that the module has given up, so that it is not asked again before
// something has changed.
func (v *visitor) fail(ctx context.Context, reason string) error {
	if reason == "" {
		reason = "the module gave no reason"
	}
	v.memory.Attempt, v.memory.Failed, v.memory.Of = v.track.attempt, reason, v.identity(v.track.face)
	return v.writeMemory(ctx)
}

// remembers reports whether what is remembered is written onto the object. A role or
// a binding has no annotation of ours, and Monitor writes nothing: then it is
// lost with the process.
func (v *visitor) remembers() bool { return memo.Fits(v.key.kind.Group) && v.f.Enforce }

// writeMemory keeps what is remembered.
func (v *visitor) writeMemory(ctx context.Context) error {
	v.track.memory = v.memory
	if !v.remembers() {
		return nil
	}
	err := v.write(ctx, func(o metav1.Object) (map[string]any, error) {
		text, err := notebookOf(o).with(v.entry, v.memory)
		return map[string]any{"annotations": map[string]*string{Annotation: text}}, err
	})
	if err != nil && !errors.Is(err, errGone) {
		return fmt.Errorf("remember: %w", err)
	}
	return nil
}

// live does what is to be done about an object that is not being deleted.
func (v *visitor) live(ctx context.Context, carries bool) time.Duration {
	switch {
	case !v.f.wants(carries):
		return 0
	case carries:
		return v.release(ctx, Released, "its finalizer's resource is deleted (onRemoval: Release)")
	case exempt(v.key.namespace):
		return 0
	}
	var err error
	if v.namespace, err = v.Reader.Namespace(ctx, v.key.namespace); err != nil {
		return lookAgain
	}
	meant, err := v.meant(ctx)
	if err != nil {
		v.Log.V(1).Info("Could not tell whether to attach a finalizer", "finalizer", v.f.String(), "object", v.key.String(), "error", err.Error())
		return lookAgain
	}
	if !meant || v.namespace.Terminating {
		return 0
	}
	err = v.write(ctx, func(o metav1.Object) (map[string]any, error) {
		if o.GetDeletionTimestamp() != nil || slices.Contains(o.GetFinalizers(), v.entry) {
			return nil, nil
		}
		return map[string]any{"finalizers": append(slices.Clone(o.GetFinalizers()), v.entry)}, nil
	})
	if errors.Is(err, errGone) {
		return 0
	}
	n := Note{Finalizer: v.f.Finalizer, Object: graph.ObjectOf(v.resource.GroupVersionKind(), v.object), Reason: Attached, Err: err}
	v.Note(n)
	if err != nil {
		return lookAgain
	}
	return 0
}
