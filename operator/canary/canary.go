// Package canary finds out whether another garbage collector is alive in the
// cluster, without asking it: a throw-away object is deleted in the
// foreground, and whoever then takes its finalizer off is a collector.
//
// Two collectors in one cluster are not dangerous to each other's objects, as
// both act on the same rules, but one of them makes decisions that the user
// believes the other to make.
package canary

import (
	"context"
	"fmt"
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
// leaves nothing behind whatever it finds, unless ctx ends or the API server
// goes away. An error means that nothing was found out.
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
	err = maps.Delete(ctx, object.Name, metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationForeground),
		Preconditions:     &metav1.Preconditions{UID: &object.UID},
	})
	if err != nil {
		return false, fmt.Errorf("delete canary ConfigMap %s/%s: %w", c.Namespace, object.Name, err)
	}
	alive, err = c.listen(ctx, object)
	if err != nil || alive {
		return alive, err
	}
	return false, c.remove(ctx, object)
}

// listen waits for somebody to finish the object's deletion.
func (c Canary) listen(ctx context.Context, object *corev1.ConfigMap) (gone bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.Timeout)
	defer cancel()
	tick := time.NewTicker(max(c.Timeout/50, 20*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			if ctx.Err() == context.DeadlineExceeded {
				return false, nil
			}
			return false, ctx.Err()
		case <-tick.C:
		}
		live, err := c.Client.CoreV1().ConfigMaps(c.Namespace).Get(ctx, object.Name, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err), err == nil && live.UID != object.UID, err == nil && len(live.Finalizers) == 0:
			return true, nil
		case err != nil && ctx.Err() == nil:
			return false, fmt.Errorf("read canary ConfigMap %s/%s: %w", c.Namespace, object.Name, err)
		}
	}
}

// remove finishes the deletion that nobody else did.
func (c Canary) remove(ctx context.Context, object *corev1.ConfigMap) error {
	patch := fmt.Sprintf(`{"metadata":{"uid":%q,"finalizers":null}}`, object.UID)
	_, err := c.Client.CoreV1().ConfigMaps(c.Namespace).Patch(ctx, object.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove canary ConfigMap %s/%s: %w", c.Namespace, object.Name, err)
	}
	return nil
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
