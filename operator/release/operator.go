package release

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// OperatorSelector is the label selector of the operator's Pods.
const OperatorSelector = "app.kubernetes.io/name=gleaner,app.kubernetes.io/component=operator"

const stopInterval = 500 * time.Millisecond

// StopOperator scales the Deployment of the operator to zero, and returns when it has no Pod and no
// active lease. The context limits how long it waits.
func (r *Releaser) StopOperator(ctx context.Context, deployment types.NamespacedName) error {
	gvr := schema.GroupVersionResource{Group: "apps", Version: "v1", Resource: "deployments"}
	_, err := r.Metadata.Resource(gvr).Namespace(deployment.Namespace).Patch(ctx, deployment.Name, types.MergePatchType, []byte(`{"spec":{"replicas":0}}`), metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("scale deployment %s to zero: %w", deployment, err)
	}
	running := "not yet known"
	err = wait.PollUntilContextCancel(ctx, stopInterval, true, func(ctx context.Context) (bool, error) {
		found, err := r.operatorParts(ctx, deployment.Namespace)
		if err == nil {
			running = found
		}
		return running == "", ctx.Err() // an API server that does not answer is asked again
	})
	if err != nil {
		return fmt.Errorf("the operator is still running (%s): %w", running, err)
	}
	return nil
}

// operatorParts returns the operator's Pods and active lease in a namespace; "" if there are none.
func (r *Releaser) operatorParts(ctx context.Context, namespace string) (string, error) {
	pods, err := r.Metadata.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace(namespace).
		List(ctx, metav1.ListOptions{LabelSelector: OperatorSelector})
	if err != nil {
		return "", fmt.Errorf("list pods: %w", err)
	}
	var parts []string
	for _, p := range pods.Items {
		parts = append(parts, "pod "+p.Name)
	}
	leases, err := r.ActiveLeases(ctx, time.Now())
	if err != nil {
		return "", err
	}
	for lease := range strings.SplitSeq(leases, ", ") { // one in another namespace is not this operator's
		if strings.HasPrefix(lease, namespace+"/") {
			parts = append(parts, "lease "+lease)
		}
	}
	return strings.Join(parts, ", "), nil
}
