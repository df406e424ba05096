package run

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/go-logr/logr"

	"github.com/gleaner-dev/gleaner/operator/gate"
)

// The durations of the Lease are those of kube-controller-manager.
const (
	leaseName     = "gleaner.dev"
	leaseDuration = 15 * time.Second
	leaseRenewal  = 10 * time.Second
	leaseRetry    = 2 * time.Second
)

// elect leads while this replica holds the Lease, or always without leader election.
func (op *Operator) elect(ctx context.Context) error {
	if !op.options.Elect {
		op.lead(ctx)
		return nil
	}
	return election{client: op.client, namespace: op.options.Namespace, gate: &op.gate, lead: op.lead, log: op.log}.run(ctx)
}

// election takes part in the elections of a leader. A replica that loses the Lease, because
// the API server was unavailable for too long, follows with its graph, and takes part in
// the next election; the manager's leader election would end the process, and so lose the
// graph.
type election struct {
	client    kubernetes.Interface
	namespace string // of the Lease
	gate      *gate.Gate
	lead      func(context.Context) // leads until the context ends
	log       logr.Logger
}

// run takes part until ctx ends.
func (e election) run(ctx context.Context) error {
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("get the host name: %w", err)
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, e.namespace, leaseName,
		e.client.CoreV1(), e.client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())})
	if err != nil {
		return fmt.Errorf("create lease lock: %w", err)
	}
	for ctx.Err() == nil {
		if err := e.campaign(ctx, lock); err != nil {
			return err
		}
	}
	return nil
}

// campaign takes part in one election, and leads until the Lease is lost or ctx ends.
func (e election) campaign(ctx context.Context, lock resourcelock.Interface) error {
	ended := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: leaseRenewal, RetryPeriod: leaseRetry,
		ReleaseOnCancel: true, Name: leaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { // in its own goroutine
				defer close(ended)
				e.log.Info("Leading", "lease", lock.Describe())
				e.lead(ctx)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("create elector: %w", err)
	}
	// Writing ends when the Lease should have been renewed, before another replica can hold
	// it.
	e.gate.SetLease(func() error { return elector.Check(leaseRenewal - leaseDuration) })
	elector.Run(ctx)
	if ctx.Err() == nil { // the Lease was lost
		<-ended
		e.log.Info("Lost the lease: following", "lease", lock.Describe())
	}
	return nil
}

// lead leads until ctx ends.
func (op *Operator) lead(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { op.gate.SetProbe(gate.Unknown) })
	defer stop()
	op.store.Lead()
	if !op.options.DryRun {
		op.gate.Lead()
	}
	op.keys.Trigger()
	op.finalizers.Trigger()
	op.prober.Run(ctx)
	<-ctx.Done()
	op.gate.Follow()
	op.store.Follow()
	op.collector.Follow()
	op.finalizers.Trigger()
}
