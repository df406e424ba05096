package loop

import (
	"context"
	"fmt"
	"os"
	"time"

	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// The times of the lease are those of kube-controller-manager.
const (
	leaseName     = "gleaner.dev"
	leaseDuration = 15 * time.Second
	leaseRenewal  = 10 * time.Second
	leaseRetry    = 2 * time.Second
)

// elect works while this replica holds the lease. One that loses it, because
// the API server was away for too long, goes on as a follower with its graph,
// and stands for election again; the manager's own election would end the
// process, and with it the graph.
func (l *Loop) elect(ctx context.Context) error {
	if !l.options.Elect {
		l.lead(ctx)
		return nil
	}
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("find out the host's name: %w", err)
	}
	lock, err := resourcelock.New(resourcelock.LeasesResourceLock, l.options.Namespace, leaseName,
		l.client.CoreV1(), l.client.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())})
	if err != nil {
		return fmt.Errorf("make lease: %w", err)
	}
	for ctx.Err() == nil {
		if err := l.stand(ctx, lock); err != nil {
			return err
		}
	}
	return nil
}

// stand stands for one election, and leads until the lease is lost or ctx ends.
func (l *Loop) stand(ctx context.Context, lock resourcelock.Interface) error {
	ended := make(chan struct{})
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: lock, LeaseDuration: leaseDuration, RenewDeadline: leaseRenewal, RetryPeriod: leaseRetry,
		ReleaseOnCancel: true, Name: leaseName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(ctx context.Context) { // on a goroutine of its own
				defer close(ended)
				l.log.Info("Leading", "lease", lock.Describe())
				l.lead(ctx)
			},
			OnStoppedLeading: func() {},
		},
	})
	if err != nil {
		return fmt.Errorf("make elector: %w", err)
	}
	// Writing ends when the lease was due to be renewed, before anybody else can
	// have it.
	l.gate.under(func() error { return elector.Check(leaseRenewal - leaseDuration) })
	elector.Run(ctx)
	if ctx.Err() == nil { // it had the lease, and lost it
		<-ended
		l.log.Info("Lost the lease: following", "lease", lock.Describe())
	}
	return nil
}

// lead works until ctx ends.
func (l *Loop) lead(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { l.gate.set(Unsure) })
	defer stop()
	l.known.lead()
	l.keys.Poke()
	l.finalizers.Poke()
	l.listen(ctx)
	<-ctx.Done()
	l.gate.set(Unsure)
	l.known.follow()
	l.parked.clear()
	l.finalizers.Poke()
}
