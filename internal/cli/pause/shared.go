package pause

import (
	"context"
	"fmt"
	"io"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// Begin pauses a namespace, or the whole cluster if it is empty, and waits until the operator says that the pause is in force. It
// lasts until it is ended, or for a time if that is positive. It returns what was done.
func Begin(ctx context.Context, c client.Client, namespace, reason string, lasts time.Duration) (done string, err error) {
	if len(reason) > v1alpha1.MaxPauseReason {
		return "", fmt.Errorf("the reason has %d bytes: use at most %d", len(reason), v1alpha1.MaxPauseReason)
	}
	spec := v1alpha1.PauseSpec{Reason: reason}
	if lasts > 0 {
		until := metav1.NewTime(time.Now().Add(lasts)).Rfc3339Copy()
		spec.Until = &until
	}
	at := scope{namespace: namespace}
	p, err := apply(ctx, c, at, spec, io.Discard)
	if err != nil {
		return "", explain(err)
	}
	return "Paused " + at.String() + ".", confirm(ctx, c, p)
}

// End deletes a Pause, or a ClusterPause if the namespace is empty. It returns what was done.
func End(ctx context.Context, c client.Client, namespace, name string) (done string, err error) {
	p := scope{namespace: namespace}.object(v1alpha1.PauseSpec{})
	p.SetName(name)
	if err := c.Delete(ctx, p.Object); err != nil {
		return "", err
	}
	return "Deleted " + nameOf(p) + ".", nil
}
