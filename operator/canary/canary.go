// Package canary finds out whether another garbage collector is alive in the
// cluster, without asking it: a throw-away object is deleted in the
// foreground, and whoever then takes its finalizer off is a collector.
//
// It never takes silence for an answer: only reads that show the object still
// waiting, up to the end of the time that another collector is given, mean
// that there is none.
package canary

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// Label marks the throw-away objects.
const Label = "gleaner.dev/canary"

const (
	// answer is how long one read may take.
	answer = 5 * time.Second

	// cleanup is how long taking a canary in may last.
	cleanup = 5 * time.Second
)

// Canary tells whether another collector is alive.
type Canary struct {
	Client    kubernetes.Interface
	Namespace string        // of the throw-away object
	Timeout   time.Duration // how long another collector is given

	// Own is told the object's UID before it is deleted, so that its owner's
	// collector leaves it alone.
	Own func(types.UID)
}

// Sing reports whether another collector is alive. It takes up to Timeout, and
// leaves nothing behind unless the API server does not let it. An error means
// that nothing was found out.
func (c Canary) Sing(ctx context.Context) (alive bool, err error) {
	maps := c.Client.CoreV1().ConfigMaps(c.Namespace)
	object, err := maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		GenerateName: "gleaner-canary-",
		Labels:       map[string]string{Label: "true"},
		Annotations: map[string]string{
			"gleaner.dev/purpose": "tells Gleaner whether another garbage collector is running; removed within seconds",
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("create canary ConfigMap in namespace %q: %w", c.Namespace, err)
	}
	c.Own(object.UID)
	gone, err := c.watch(ctx, object)
	if gone {
		return true, nil
	}
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanup)
	defer cancel()
	finished, removal := c.takeIn(cleaning, object)
	return finished && err == nil, errors.Join(err, removal)
}

// watch deletes the object and reports whether somebody finishes that.
func (c Canary) watch(ctx context.Context, object *corev1.ConfigMap) (gone bool, err error) {
	err = c.Client.CoreV1().ConfigMaps(c.Namespace).Delete(ctx, object.Name, metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationForeground),
		Preconditions:     &metav1.Preconditions{UID: &object.UID},
	})
	if err != nil {
		return false, fmt.Errorf("delete canary ConfigMap %s/%s: %w", c.Namespace, object.Name, err)
	}
	end := time.NewTimer(c.Timeout)
	defer end.Stop()
	tick := time.NewTicker(max(c.Timeout/50, 20*time.Millisecond))
	defer tick.Stop()
	for {
		over := false
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-end.C:
			over = true // and the last look is the one that counts
		case <-tick.C:
		}
		if gone, err := c.isGone(ctx, object); gone || err != nil || over {
			return gone, err
		}
	}
}

func (c Canary) isGone(ctx context.Context, object *corev1.ConfigMap) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	live, err := c.Client.CoreV1().ConfigMaps(c.Namespace).Get(ctx, object.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("read canary ConfigMap %s/%s: %w", c.Namespace, object.Name, err)
	}
	return live.UID != object.UID || !slices.Contains(live.Finalizers, metav1.FinalizerDeleteDependents), nil
}

// takeIn removes the object, whatever state it is in. It reports whether it
// was gone already, which somebody else must have seen to: a collector that
// was slower than Timeout, and quicker than this.
func (c Canary) takeIn(ctx context.Context, object *corev1.ConfigMap) (gone bool, err error) {
	maps := c.Client.CoreV1().ConfigMaps(c.Namespace)
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"finalizers":null}}`, object.UID)
	left, err := maps.Patch(ctx, object.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsInvalid(err), apierrors.IsConflict(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("remove canary ConfigMap %s/%s: %w", c.Namespace, object.Name, err)
	case left.DeletionTimestamp != nil:
		return false, nil // that was its last finalizer
	}
	err = maps.Delete(ctx, object.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &object.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return false, fmt.Errorf("remove canary ConfigMap %s/%s: %w", c.Namespace, object.Name, err)
	}
	return false, nil
}

// Holder returns who holds kube-controller-manager's lease, "" if there is no
// such lease. With a change of holder another collector may have been switched
// on, as by an upgrade.
func Holder(ctx context.Context, client kubernetes.Interface) (string, error) {
	lease, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "kube-controller-manager", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read kube-controller-manager's lease: %w", err)
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), nil
}
