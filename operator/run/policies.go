package run

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/canary"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/inuse"
	"github.com/gleaner-dev/gleaner/operator/modulestore/loader"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/policystatus"
	"github.com/gleaner-dev/gleaner/operator/relabel"
	"github.com/gleaner-dev/gleaner/policies/source/egress"
)

// connectPolicies creates what loads modules and publishes policies. It sends no requests
// yet.
func (op *Operator) connectPolicies(config *rest.Config) (err error) {
	if op.policyClient, err = policyset.NewClient(config); err != nil {
		return fmt.Errorf("create client for policies: %w", err)
	}
	log := op.log.WithName("policies")
	if op.modules, err = loader.New(loader.Options{
		Reader: op.policyClient, CacheDir: op.options.CacheDir, Sandbox: op.options.Sandbox, Log: log, Now: op.now,
		Egress: egress.Config{Allow: op.options.ModuleNetworks, IsInternal: op.networks.Networks, Remedy: "--module-networks lets modules of namespaces come from there"},
		Quota:  op.options.ModuleQuota, DisableTenantModules: op.options.DisableTenantModules, Trust: op.options.ModuleTrust,
	}); err != nil {
		return err
	}
	op.snapshots, err = policyset.NewPublisher(policyset.Options{
		Reader: op.policyClient, Absent: func(ctx context.Context, gk schema.GroupKind) (bool, error) { return op.watcher.Absent(ctx, gk) },
		Store: op.modules.Store, Rules: op.rules(),
		Archiver: op.archiving.handler(), Log: log,
	})
	if err != nil {
		return err
	}
	return op.connectValidation()
}

// rules are what the options allow resources to say.
func (op *Operator) rules() policyset.Rules {
	return policyset.Rules{Networks: op.options.FinalizerNetworks, CheckGrants: intents.Check, CheckRecipients: checkRecipients}
}

// connectSubscribers creates what subscribes to snapshots of policies. One client is for objects, the other one that of
// the watches.
func (op *Operator) connectSubscribers(client, watching metadata.Interface) {
	log, v, follow := op.log.WithName("policies"), view{op}, follower{op}
	objects := admission.NewObjects(op.policyClient, op.options.Namespace)
	installer, protecting, gracePeriods := op.connectAdmission(objects), op.connectProtection(objects), op.connectGracePeriods(objects, client)
	status := policystatus.Options{
		Client: op.policyClient, Snapshots: op.snapshots, Gate: &op.gate, Admission: installer.Status(), Protect: protecting.Status(), GracePeriods: gracePeriods.Status(),
		Observations: op.observations, Sandbox: op.modules.Sandbox, Held: v.heldByPlace, Progress: v.progress, Serves: v.serves, ServesKind: v.servesKind,
		Events: op.policyEvents, Archive: op.archiving.status(), Retention: op.retention.Status(), Log: log, Now: op.now,
	}
	if op.options.Companion {
		op.companion = companion.New(companion.Options{
			Objects: objects, Snapshots: op.snapshots, Gate: &op.gate, Endpoint: *op.options.Webhook, Collector: op.options.Collector,
			CanaryLabel: canary.Label, NoCanary: op.options.CanaryTimeout == 0, KindOf: v.kindOf, Log: log,
		})
		status.Companion = op.companion.Status()
		op.subscribers = append(op.subscribers, op.companion.Run)
	} else {
		op.subscribers = append(op.subscribers, func(ctx context.Context) error { return follow.removeCompanion(ctx, objects) })
	}
	op.statusWriter = policystatus.NewWriter(status)
	guard := inuse.New(inuse.Options{
		Client: op.policyClient, Snapshots: op.snapshots, Gate: &op.gate, Admission: installer.Status(), Log: log,
		Carriers: func(uid types.UID) (int, bool) {
			p := op.finalizers.Progress(uid)
			return p.WithFinalizer, p.Counted
		},
	})
	op.prober = canary.NewProber(canary.ProberOptions{
		Client: op.client, Namespace: op.options.Namespace, Timeout: op.options.CanaryTimeout, Interval: op.options.CanaryInterval,
		DryRun: op.options.DryRun, Gate: &op.gate, Companion: op.companion, Own: op.store.SetCanary, Log: op.log,
	})
	labels := relabel.New(relabel.Options{
		Changed: op.snapshots.Changed, Selectors: op.snapshots.Selectors, Types: op.types, Gate: &op.gate,
		Client: watching, Store: op.store, Now: op.now, Log: log,
	})
	op.subscribers = append(op.subscribers, labels.Run, op.pausing.source.Run, op.images.Run, op.budgeting.budgeter.Run, op.cascading.log.Run, op.retention.Run, follow.gateChanges, follow.policyChanges, follow.pauseChanges, follow.budgetCalls, installer.Run, protecting.Run, gracePeriods.Run, op.validationInstaller(objects).Run, op.statusWriter.Run, guard.Run)
	op.subscribers = append(op.subscribers, op.archiving.run()...)
}

// policiesChanged queues everything that the policies in force, or the types that they
// select, may concern.
func (op *Operator) policiesChanged() {
	op.collector.PoliciesChanged()
	if op.finalizers != nil {
		op.finalizers.Trigger()
	}
}

// addAll adds functions to a manager, which runs them on every replica.
func addAll(mgr manager.Manager, all ...manager.RunnableFunc) error {
	for _, r := range all {
		if err := mgr.Add(everywhere{r}); err != nil {
			return fmt.Errorf("add to manager: %w", err)
		}
	}
	return nil
}
