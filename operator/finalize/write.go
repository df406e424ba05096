package finalize

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

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/memo"
	"github.com/gleaner-dev/gleaner/operator/statekey"
)

// writeBackoff is for writing to an object that others change all the time.
var writeBackoff = wait.Backoff{Steps: 5, Duration: 10 * time.Millisecond, Factor: 4, Jitter: 0.1}

var (
	// errGone is an object that is not there any more, or has become another one.
	errGone = errors.New("it is gone")

	// errOver is for a server that is not to write any more.
	errOver = errors.New("another one serves it")
)

// write changes the object's finalizers and annotations, and nothing that anybody
// else has written meanwhile. The change says what is to be patched, of the object as
// it is; nil: nothing. Written tells that something was.
func (v *visitor) write(ctx context.Context, change func(metav1.Object) (map[string]any, error)) (written bool, err error) {
	client := v.Client.Resource(v.resource.Version).Namespace(v.key.namespace)
	err = retry.RetryOnConflict(writeBackoff, func() error {
		if v.over(ctx) {
			return errOver
		}
		if err := v.refresh(ctx, client); err != nil {
			return err
		}
		patch, err := change(v.latest)
		if patch == nil || err != nil {
			return err
		}
		patch["uid"], patch["resourceVersion"] = v.key.uid, v.latest.GetResourceVersion()
		body, err := json.Marshal(map[string]any{"metadata": patch})
		if err != nil {
			return err
		}
		v.latest = nil
		live, err := client.Patch(ctx, v.key.name, types.MergePatchType, body, metav1.PatchOptions{})
		switch {
		case err != nil && v.denied(err):
			return errGone
		case apierrors.IsInvalid(err) && v.changed(ctx, client):
			return errGone // another object by that name
		case err != nil:
			return err
		case live.UID != v.key.uid:
			return errors.New("the answer is about another object, or about none")
		}
		v.latest, written = live, true
		return nil
	})
	return written, err
}

// refresh reads the object's metadata, if what is known of it has proved to be old.
func (v *visitor) refresh(ctx context.Context, client metadata.ResourceInterface) error {
	if v.latest != nil {
		return nil
	}
	live, err := client.Get(ctx, v.key.name, metav1.GetOptions{})
	switch {
	case err != nil && v.denied(err):
		return errGone
	case err != nil:
		return err
	case live.UID == "":
		return errors.New("the answer is about no object")
	case live.UID != v.key.uid:
		return errGone
	}
	v.latest = live
	return nil
}

// denied reports whether the API server says that there is no such object.
func (v *visitor) denied(err error) bool {
	return catalog.Denies(err, v.resource.Version.GroupResource(), v.key.name)
}

// changed reports whether there is another object by the name now.
func (v *visitor) changed(ctx context.Context, client metadata.ResourceInterface) bool {
	live, err := client.Get(ctx, v.key.name, metav1.GetOptions{})
	return err == nil && live.UID != "" && live.UID != v.key.uid
}

// release takes the finalizer off although the module has not said so.
func (v *visitor) release(ctx context.Context, message string) time.Duration {
	return v.letGo(ctx, Note{Reason: Released, Message: message})
}

// letGo takes the finalizer off.
func (v *visitor) letGo(ctx context.Context, n Note) time.Duration {
	taken, err := v.write(ctx, func(o metav1.Object) (map[string]any, error) {
		finalizers := slices.Clone(o.GetFinalizers())
		if !slices.Contains(finalizers, v.entry) {
			return nil, nil
		}
		finalizers = slices.DeleteFunc(finalizers, func(f string) bool { return f == v.entry })
		patch := map[string]any{"finalizers": finalizers}
		if _, ours := o.GetAnnotations()[Annotation]; !ours || !memo.Fits(v.key.kind.Group) {
			return patch, nil
		}
		text, err := notebookOf(o).with(v.entry, memory{}, statekey.Keys{}) // nothing is to be signed
		patch["annotations"] = map[string]*string{Annotation: text}
		return patch, err
	})
	if err != nil && !errors.Is(err, errGone) {
		return v.failed(ctx, n, fmt.Errorf("take the finalizer off: %w", err))
	}
	n.Finalizer, n.Taken = v.f.Finalizer, taken
	n.Object = graph.ObjectOf(v.resource.GroupVersionKind(), v.object)
	if deleted := v.object.GetDeletionTimestamp(); deleted != nil {
		n.Lasted = v.Now().Sub(deleted.Time)
	}
	v.drop(v.key, taken)
	v.Note(n)
	return 0
}
