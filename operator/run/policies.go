package run

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/canary"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/inuse"
	"github.com/gleaner-dev/gleaner/operator/modulestore/loader"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/policystatus"
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
		Quota:  op.options.ModuleQuota, DisableTenantModules: op.options.DisableTenantModules,
	}); err != nil {
		return err
	}
	op.snapshots, err = policyset.NewPublisher(policyset.Options{
		Reader: op.policyClient, Absent: func(ctx context.Context, gk schema.GroupKind) (bool, error) { return op.watcher.Absent(ctx, gk) },
		Store: op.modules.Store, Rules: policyset.Rules{Networks: op.options.FinalizerNetworks, CheckGrants: intents.Check}, Log: log,
	})
	return err
}

// connectSubscribers creates what subscribes to snapshots of policies.
func (op *Operator) connectSubscribers() {
	log := op.log.WithName("policies")
	objects := admission.NewObjects(op.policyClient, op.options.Namespace)
	installer := admission.New(admission.Options{
		Objects: objects, Snapshots: op.snapshots, Gate: &op.gate, Webhook: op.options.Webhook, Serves: op.serves, Now: op.now, Log: log,
	})
	status := policystatus.Options{
		Client: op.policyClient, Snapshots: op.snapshots, Gate: &op.gate, Admission: installer.Status(),
		Observations: op.observations, Sandbox: op.modules.Sandbox, Held: op.heldByPlace, Progress: op.progress, Serves: op.serves,
		Events: op.policyEvents, Log: log, Now: op.now,
	}
	if op.options.Companion {
		op.companion = companion.New(companion.Options{
			Objects: objects, Snapshots: op.snapshots, Gate: &op.gate, Endpoint: *op.options.Webhook, Collector: op.options.Collector,
			CanaryLabel: canary.Label, NoCanary: op.options.CanaryTimeout == 0, KindOf: op.kindOf, Log: log,
		})
		status.Companion = op.companion.Status()
		op.subscribers = append(op.subscribers, op.companion.Run)
	} else {
		op.subscribers = append(op.subscribers, func(ctx context.Context) error { return op.removeCompanion(ctx, objects) })
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
	op.subscribers = append(op.subscribers, op.followGate, op.followPolicies, installer.Run, op.statusWriter.Run, guard.Run)
}

// policiesChanged queues everything that the policies in force, or the types that they
// select, may concern.
func (op *Operator) policiesChanged() {
	op.collector.PoliciesChanged()
	if op.finalizers != nil {
		op.finalizers.Trigger()
	}
}

// heldByPlace counts the objects with a hold.
func (op *Operator) heldByPlace() map[policystatus.Place]int {
	counts, types := map[policystatus.Place]int{}, op.types()
	op.store.EachHeld(func(kind schema.GroupKind, namespace string) {
		if r, ok := types.Preferred(kind); ok {
			counts[policystatus.Place{Resource: r.Version.GroupResource(), Namespace: namespace}]++
		}
	})
	return counts
}

// serves reports whether discovery has seen a resource, and whether its objects are in
// namespaces.
func (op *Operator) serves(r schema.GroupResource) (served, namespaced bool) {
	all := op.types().Collected()
	i := slices.IndexFunc(all, func(t catalog.Resource) bool { return t.Version.GroupResource() == r })
	return i >= 0, i >= 0 && all[i].Namespaced
}

// kindOf returns the kind of a resource, if discovery has seen it.
func (op *Operator) kindOf(r schema.GroupResource) (schema.GroupKind, bool) {
	for _, t := range op.types().Collected() {
		if t.Version.GroupResource() == r {
			return t.GroupKind(), true
		}
	}
	return schema.GroupKind{}, false
}

// followPolicies queues what each new snapshot may concern.
func (op *Operator) followPolicies(ctx context.Context) error {
	var revision uint64
	for {
		changed := op.snapshots.Changed()
		if s := op.snapshots.Current(); s != nil && s.Revision != revision {
			revision = s.Revision
			op.policiesChanged()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// followGate queues everything when the gate is opened. A lapse of the lease does not count
// as closed: what was postponed then is retried.
func (op *Operator) followGate(ctx context.Context) error {
	open, term := false, uint64(0)
	for {
		changed := op.gate.Changed()
		s := op.gate.State()
		now := s.Probe == gate.Open || s.Lapsed
		if now && (!open || s.Term != term) {
			op.store.Sweep()
		}
		open, term = now, s.Term
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// removalRetryInterval is when a failed removal of what a companion has installed is retried.
const removalRetryInterval = 10 * time.Second

// removeCompanion removes what companion mode has installed earlier, once this is known to
// be the only collector: until then, it prevents the other one from deleting.
func (op *Operator) removeCompanion(ctx context.Context, objects *admission.Objects) error {
	tick := time.NewTicker(removalRetryInterval)
	defer tick.Stop()
	for {
		changed := op.gate.Changed()
		if s := op.gate.State(); s.Leading && s.Probe == gate.Open && op.snapshots.Current() != nil {
			err := companion.Remove(ctx, objects)
			if err == nil {
				<-ctx.Done() // a manager ends when a runnable returns
				return nil
			}
			if ctx.Err() == nil {
				op.log.Error(err, "Could not remove what companion mode has installed")
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
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
