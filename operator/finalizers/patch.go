package finalizers

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/util/retry"

	"github.com/gleaner-dev/gleaner/operator/act"
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

// A patcher patches the metadata of one object, if the steps of the writer admit it.
type patcher struct {
	*subject
	latest metav1.Object // the newest known metadata; nil: must be read
}

// patch patches the object's finalizers and annotations without overwriting concurrent
// changes. The function change returns the metadata to patch, given the live object; nil
// means no write. The result reports whether the object was written.
func (p *patcher) patch(ctx context.Context, effect writer.Effect, change func(metav1.Object) (map[string]any, error)) (written bool, err error) {
	client := p.Client.Resource(p.resource.Version).Namespace(p.key.namespace)
	err = retry.RetryOnConflict(writeBackoff, func() error {
		if p.stopped(ctx) {
			return errStopped
		}
		if err := p.refresh(ctx, client); err != nil {
			return err
		}
		fields, err := change(p.latest)
		if fields == nil || err != nil {
			return err
		}
		err = p.write(ctx, client, effect, fields)
		written = err == nil
		return err
	})
	return written, err
}

// write patches the object's metadata, if the steps of the writer admit it.
func (p *patcher) write(ctx context.Context, client metadata.ResourceInterface, effect writer.Effect, fields map[string]any) error {
	target := p.target()
	target.ResourceVersion = p.latest.GetResourceVersion()
	fields["uid"], fields["resourceVersion"] = p.key.uid, target.ResourceVersion
	body, err := json.Marshal(map[string]any{"metadata": fields})
	if err != nil {
		return err
	}
	p.latest = nil
	result, err := p.writer.Do(ctx, writer.Write{
		Origin: p.origin(), Target: target, Effect: effect, Cause: p.cause(),
		Do: func(ctx context.Context) (act.Result, error) { return p.send(ctx, client, body) },
	})
	if err == nil && result == act.Changed {
		err = apierrors.NewConflict(p.resource.Version.GroupResource(), p.key.name, errChanged)
	}
	return err
}

// send sends a patch.
func (p *patcher) send(ctx context.Context, client metadata.ResourceInterface, body []byte) (act.Result, error) {
	live, err := client.Patch(ctx, p.key.name, types.MergePatchType, body, metav1.PatchOptions{})
	switch {
	case err != nil && p.notFound(err):
		return act.AlreadyGone, errGone
	case apierrors.IsInvalid(err) && p.replaced(ctx, client):
		return act.AlreadyGone, errGone // replaced by another object of that name
	case apierrors.IsConflict(err):
		return act.Changed, err
	case err != nil:
		return act.Failed, err
	case live.UID != p.key.uid:
		return act.Failed, errors.New("response contains another object or none")
	}
	p.latest = live
	return act.Done, nil
}

// refresh reads the object's metadata if the known one is outdated.
func (p *patcher) refresh(ctx context.Context, client metadata.ResourceInterface) error {
	if p.latest != nil {
		return nil
	}
	live, err := client.Get(ctx, p.key.name, metav1.GetOptions{})
	switch {
	case err != nil && p.notFound(err):
		return errGone
	case err != nil:
		return err
	case live.UID == "":
		return errors.New("response contains no object")
	case live.UID != p.key.uid:
		return errGone
	}
	p.latest = live
	return nil
}

// replaced reports whether another object has the name now.
func (p *patcher) replaced(ctx context.Context, client metadata.ResourceInterface) bool {
	live, err := client.Get(ctx, p.key.name, metav1.GetOptions{})
	return err == nil && live.UID != "" && live.UID != p.key.uid
}
