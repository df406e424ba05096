package main

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/operator/modules"
)

// orphaning is a policy that has Deployments leave behind what they own.
const orphaning = `apiVersion: gleaner.dev/v1alpha1
kind: ClusterGCPolicy
metadata: {name: leave}
spec:
  resources: [{apiGroups: [apps], resources: [deployments]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ` + demoNamespace + `}}
  fixed: {propagate: {decision: Orphan, reason: the replicas are to go on}}
  mode: Enforce
`

func (d *demonstration) companionActs() []act {
	return []act{
		{"Without policies: the other collector does it all", d.leftToTheOther},
		{"A policy in Rego, in Monitor: it says what it would do, and changes nothing", d.monitor},
		{"The same policy, in Enforce: what has the label is kept from the other collector", d.enforceBeside},
		{"A policy on what becomes of the dependents: kubectl delete deployment, and the replicas stay", d.leave},
		{"Without policies again: no webhook is left, and things go", d.disarmed},
	}
}

// leftToTheOther shows that Gleaner does nothing of itself.
func (d *demonstration) leftToTheOther(ctx context.Context) error {
	if err := d.kubectl(ctx, "create", "namespace", demoNamespace); err != nil {
		return err
	}
	if err := d.background(ctx); err != nil {
		return err
	}
	if d.counts != [3]int{} {
		return errors.New("there is no policy, and something was written")
	}
	kubectl.Fprintln(d.out, "All of it went, and Gleaner has written nothing.")
	return nil
}

// enforceBeside waits for the webhook as well.
func (d *demonstration) enforceBeside(ctx context.Context) error {
	if err := d.enforce(ctx); err != nil {
		return err
	}
	return d.kubectl(ctx, "get", "validatingwebhookconfiguration", modules.VetoName)
}

// leave has a policy orphan what a client deletes in the background.
func (d *demonstration) leave(ctx context.Context) error {
	if err := d.apply(ctx, orphaning, true); err != nil {
		return err
	}
	if err := d.inForce(ctx, "leave"); err != nil {
		return err
	}
	if err := d.deployment(ctx, "left"); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "delete", "deployment", "left", "-n", demoNamespace); err != nil {
		return err
	}
	return d.until(ctx, func() error { return d.left(ctx, "left", 1, demoReplicas) })
}

// disarmed takes the policies away.
func (d *demonstration) disarmed(ctx context.Context) error {
	if err := d.kubectl(ctx, "delete", "clustergcpolicy", "by-label", "leave"); err != nil {
		return err
	}
	if err := d.until(ctx, func() error {
		_, err := d.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, modules.VetoName, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the webhook's configuration is still there: %w", err)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := d.family(ctx, "free", setting); err != nil {
		return err
	}
	return d.until(ctx, func() error { return d.remain(ctx, "configmap", "free-kept", false) })
}
