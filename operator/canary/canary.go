// Package canary probes whether another garbage collector is running in the cluster:
// it deletes a temporary ConfigMap, the canary, in the foreground. If its finalizer is
// then removed, a garbage collector is running.
//
// Errors prove nothing. The result is negative only if reads show, until the timeout,
// that the canary still has its finalizer.
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

// Label is the label of canaries.
const Label = "gleaner.dev/canary"

// NamePrefix is that of the names of canaries.
const NamePrefix = "gleaner-canary-"

const (
	// readTimeout is the timeout of one read.
	readTimeout = 5 * time.Second

	// cleanupTimeout is the timeout for removing a canary.
	cleanupTimeout = 5 * time.Second
)

// Probe probes whether another garbage collector is running.
type Probe struct {
	Client    kubernetes.Interface
	Namespace string        // of the canary
	Timeout   time.Duration // for another garbage collector to remove the finalizer

	// OnCreate is called with the canary's UID before it is deleted, so that Gleaner itself
	// ignores it.
	OnCreate func(types.UID)
}

// Run reports whether another garbage collector is running. It takes up to Timeout,
// and removes the canary unless the API server refuses. An error means that the result
// is unknown.
func (c Probe) Run(ctx context.Context) (alive bool, err error) {
	configMaps := c.Client.CoreV1().ConfigMaps(c.Namespace)
	object, err := configMaps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		GenerateName: NamePrefix,
		Labels:       map[string]string{Label: "true"},
		Annotations: map[string]string{
			"gleaner.dev/purpose": "probes whether another garbage collector is running; removed within seconds",
		},
	}}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("create canary ConfigMap in namespace %q: %w", c.Namespace, err)
	}
	c.OnCreate(object.UID)
	finalized, err := c.deleteAndWait(ctx, object)
	if finalized {
		return true, nil
	}
	cleaning, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupTimeout)
	defer cancel()
	finished, removal := c.remove(cleaning, object)
	return finished && err == nil, errors.Join(err, removal)
}

// deleteAndWait deletes the canary and reports whether a garbage collector finalizes it.
func (c Probe) deleteAndWait(ctx context.Context, object *corev1.ConfigMap) (finalized bool, err error) {
	err = c.Client.CoreV1().ConfigMaps(c.Namespace).Delete(ctx, object.Name, metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationForeground),
		Preconditions:     &metav1.Preconditions{UID: &object.UID},
	})
	if err != nil {
		return false, fmt.Errorf("delete canary ConfigMap %s/%s: %w", c.Namespace, object.Name, err)
	}
	timeout := time.NewTimer(c.Timeout)
	defer timeout.Stop()
	tick := time.NewTicker(max(c.Timeout/50, 20*time.Millisecond))
	defer tick.Stop()
	for {
		timedOut := false
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-timeout.C:
			timedOut = true // after one last read
		case <-tick.C:
		}
		if finalized, err := c.isFinalized(ctx, object); finalized || err != nil || timedOut {
			return finalized, err
		}
	}
}

func (c Probe) isFinalized(ctx context.Context, object *corev1.ConfigMap) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
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

// remove removes the canary, whatever its state. It reports whether the canary was
// already gone: then a garbage collector finalized it after Timeout.
func (c Probe) remove(ctx context.Context, object *corev1.ConfigMap) (gone bool, err error) {
	configMaps := c.Client.CoreV1().ConfigMaps(c.Namespace)
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"finalizers":null}}`, object.UID)
	patched, err := configMaps.Patch(ctx, object.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	switch {
	case apierrors.IsNotFound(err), apierrors.IsInvalid(err), apierrors.IsConflict(err):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("remove canary ConfigMap %s/%s: %w", c.Namespace, object.Name, err)
	case patched.DeletionTimestamp != nil:
		return false, nil // that was its last finalizer
	}
	err = configMaps.Delete(ctx, object.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &object.UID}})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return false, fmt.Errorf("remove canary ConfigMap %s/%s: %w", c.Namespace, object.Name, err)
	}
	return false, nil
}

// LeaseHolder returns the holder identity of kube-controller-manager's lease, or "" if there
// is no such lease. When the holder changes, for example by an upgrade, another garbage
// collector may have been enabled.
func LeaseHolder(ctx context.Context, client kubernetes.Interface) (string, error) {
	lease, err := client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, "kube-controller-manager", metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return "", nil
	case err != nil:
		return "", fmt.Errorf("read kube-controller-manager's lease: %w", err)
	}
	return ptr.Deref(lease.Spec.HolderIdentity, ""), nil
}
