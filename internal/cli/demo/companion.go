package demo

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/companion"
)

// orphanPolicy is a policy that orphans the dependents of Deployments.
const orphanPolicy = `apiVersion: gleaner.dev/v1alpha1
kind: ClusterGCPolicy
metadata: {name: leave}
spec:
  resources: [{apiGroups: [apps], resources: [deployments]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ` + namespace + `}}
  fixed: {propagate: {decision: Orphan, reason: the replicas keep running}}
  mode: Enforce
`

func (d *demoRun) companionSteps() []demoStep {
	return []demoStep{
		{"Without policies: the built-in garbage collector does all the work", d.withoutPolicies},
		{"A Rego policy in Monitor mode: its decisions are recorded without effect", d.monitor},
		{"The same policy in Enforce mode: objects with the label are kept from the built-in garbage collector", d.enforceCompanion},
		{"A propagate policy: kubectl delete deployment, and the replicas are kept", d.orphanByPolicy},
		{"Without policies again: the webhook is removed, and objects are collected", d.policiesDeleted},
	}
}

// withoutPolicies checks that Gleaner does nothing without policies.
func (d *demoRun) withoutPolicies(ctx context.Context) error {
	if err := d.kubectl(ctx, "create", "namespace", namespace); err != nil {
		return err
	}
	if err := d.background(ctx); err != nil {
		return err
	}
	if d.counts != [3]int{} {
		return errors.New("something was written without a policy")
	}
	printer.Fprintln(d.out, "All objects were collected, and Gleaner has written nothing.")
	return nil
}

// enforceCompanion also shows the webhook.
func (d *demoRun) enforceCompanion(ctx context.Context) error {
	if err := d.enforce(ctx); err != nil {
		return err
	}
	return d.kubectl(ctx, "get", "validatingwebhookconfiguration", companion.ConfigurationName)
}

// orphanByPolicy applies a policy that orphans the dependents in a background deletion.
func (d *demoRun) orphanByPolicy(ctx context.Context) error {
	if err := d.apply(ctx, orphanPolicy, true); err != nil {
		return err
	}
	if err := d.waitReady(ctx, "leave"); err != nil {
		return err
	}
	if err := d.deployment(ctx, "left"); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "delete", "deployment", "left", "-n", namespace); err != nil {
		return err
	}
	return d.until(ctx, func() error { return d.checkRemaining(ctx, "left", 1, demoReplicas) })
}

// policiesDeleted deletes the policies.
func (d *demoRun) policiesDeleted(ctx context.Context) error {
	if err := d.kubectl(ctx, "delete", "clustergcpolicy", "by-label", "leave"); err != nil {
		return err
	}
	if err := d.until(ctx, func() error {
		_, err := d.client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, companion.ConfigurationName, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the webhook configuration still exists: %w", err)
		}
		return nil
	}); err != nil {
		return err
	}
	if err := d.createFamily(ctx, "free", configMapManifest); err != nil {
		return err
	}
	return d.until(ctx, func() error { return d.checkObject(ctx, "configmap", "free-kept", false) })
}
