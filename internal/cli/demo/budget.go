package demo

import (
	"context"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// deletionBudget allows two Pods to be deleted, and then waits for a person.
const deletionBudget = `apiVersion: gleaner.dev/v1alpha1
kind: ClusterDeletionBudget
metadata: {name: runaway}
spec:
  resources:
  - {apiGroups: [""], resources: [pods]}
  maxDeletions: 2
  window: 1h
  onExhausted: Trip
`

// budget limits a deletion, and shows when it has completed.
func (d *demoRun) budget(ctx context.Context) error {
	const name = "runaway"
	if err := d.apply(ctx, deletionBudget, true); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "wait", "--for=condition=Accepted", "clusterdeletionbudget/runaway", "--timeout=60s"); err != nil {
		return err
	}
	if err := d.deployment(ctx, name); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "delete", "deployment", name, "-n", namespace); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "wait", "--for=condition=Exhausted", "clusterdeletionbudget/runaway", "--timeout=60s"); err != nil {
		return err
	}
	if err := d.until(ctx, func() error { return d.checkRemaining(ctx, name, 0, demoReplicas-2) }); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "get", "clusterdeletionbudget", "runaway"); err != nil {
		return err
	}
	if err := d.gleaner(ctx, []string{"Resumed"}, "resume", "--budget", "runaway"); err != nil {
		return err
	}
	if err := d.until(ctx, func() error { return d.checkRemaining(ctx, name, 0, 0) }); err != nil {
		return err
	}
	completed := "reason=CascadeCompleted,involvedObject.kind=Deployment,involvedObject.name=" + name
	if err := d.until(ctx, func() error {
		events, err := d.client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: completed})
		if err == nil && len(events.Items) != 1 {
			err = fmt.Errorf("%d events say that the deletion has completed", len(events.Items))
		}
		return err
	}); err != nil {
		return err
	}
	return errors.Join(
		d.kubectl(ctx, "get", "events", "-n", namespace, "--field-selector="+completed),
		d.kubectl(ctx, "delete", "clusterdeletionbudget", "runaway"))
}
