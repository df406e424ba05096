package loop

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gleaner-dev/gleaner/operator/canary"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/gather"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

const (
	// leaseInterval is how often kube-controller-manager's lease is looked at:
	// another holder may be another version, with another collector.
	leaseInterval = 10 * time.Second

	// shutInterval is how often a canary is let out while another collector is
	// known to be there.
	shutInterval = time.Minute

	// canaryRetry is when a canary that found nothing out is let out again.
	canaryRetry = 5 * time.Second
)

// AddTo has a manager run the Loop. Every replica watches and keeps the graph,
// so that a new leader has it already; only the leader works. The manager's own
// leader election is not used: see elect.
func (l *Loop) AddTo(mgr manager.Manager) error {
	feeds := &feeds{loop: l}
	most, crowded := &feed{feeds: feeds}, &feed{feeds: feeds, crowded: true}
	usual, err := l.controller("gleaner", most, l.options.Workers, l.reconcileUsual)
	if err != nil {
		return err
	}
	apart, err := l.controller("gleaner-many-owners", crowded, 1, l.reconcileCrowded)
	if err != nil {
		return err
	}
	for _, r := range []manager.RunnableFunc{
		l.watcher.Run, l.keys.Run, l.keeper.Run, l.finalizers.Run, l.tell, l.sweep, l.confirm, l.elect, usual.Start, apart.Start,
	} {
		if err := mgr.Add(everywhere{r}); err != nil {
			return fmt.Errorf("add to manager: %w", err)
		}
	}
	if err := l.options.Metrics.Register(l.metrics); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return mgr.AddReadyzCheck("synced", l.ready())
}

// controller makes one that works on what a feed queues.
func (l *Loop) controller(name string, from *feed, workers int, do reconcile.TypedFunc[item]) (controller.TypedController[item], error) {
	c, err := controller.NewTypedUnmanaged(name, controller.TypedOptions[item]{
		Reconciler:              do,
		MaxConcurrentReconciles: workers,
		RateLimiter:             workqueue.NewTypedItemExponentialFailureRateLimiter[item](firstRetry, longestRetry),
		NewQueue:                newQueue(workers),
		NeedLeaderElection:      ptr.To(false),
		CacheSyncTimeout:        l.options.SyncTimeout + time.Minute, // ours ends sooner, and is no error
		SkipNameValidation:      ptr.To(true),                        // tests run several in one process
		Logger:                  l.log,
	})
	if err != nil {
		return nil, fmt.Errorf("make controller: %w", err)
	}
	if err := c.Watch(from); err != nil {
		return nil, fmt.Errorf("feed controller: %w", err)
	}
	return c, nil
}

// everywhere is a runnable that every replica runs, leading or not.
type everywhere struct{ manager.RunnableFunc }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (everywhere) NeedLeaderElection() bool { return false }

// ready says whether a replica could take over.
func (l *Loop) ready() func(*http.Request) error {
	return func(*http.Request) error {
		if l.listed() {
			return nil
		}
		return fmt.Errorf("%d resources are not listed yet", len(l.watcher.Unsynced()))
	}
}

// listed reports whether the graph has what there is: once everything was listed, or
// after SyncTimeout.
func (l *Loop) listed() bool {
	return l.watcher == nil || l.watcher.Synced() || l.now().Sub(l.began) >= l.options.SyncTimeout
}

// sweep looks at everything once in a while, so that no lost event is lost for
// ever, and forgets what was proven long ago.
func (l *Loop) sweep(ctx context.Context) error {
	tick := time.NewTicker(l.options.SweepInterval)
	defer tick.Stop()
	told := map[graph.Twins]bool{}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		l.known.Apply(graph.Expired{Before: l.now().Add(-proofLife)})
		l.known.sweep()
		l.forgetSeries()
		l.tellTwins(told)
	}
}

// tellTwins says once of each pair of types that they show the same objects.
func (l *Loop) tellTwins(told map[graph.Twins]bool) {
	for _, pair := range l.known.twins() {
		if !told[pair] {
			told[pair] = true
			l.log.Info("Two types show the same objects, of which the first counts", "first", pair.First.String(), "second", pair.Second.String(),
				"fix", "name the resource of one of them in --ignore-resources")
		}
	}
}

// confirm runs the barrier's rounds.
func (l *Loop) confirm(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-l.barrier.Asked():
		}
		began := l.now()
		l.known.again(l.barrier.Round(ctx))
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(gather.BarrierPeriod - l.now().Sub(began)):
		}
	}
}

// migrations is the type that kube-controller-manager panics on when its
// garbage collector is switched off, and the controller of the type is not.
// That controller runs by default from Kubernetes 1.37 on.
var migrations = schema.GroupKind{Group: "storagemigration.k8s.io", Kind: "StorageVersionMigration"}

// typesChanged wakes what waits for a type.
func (l *Loop) typesChanged(types *catalog.Catalog) {
	if l.keeper != nil {
		l.keeper.TypesChanged()
	}
	l.policiesChanged()
	if _, served := types.Preferred(migrations); served && !l.options.Beside {
		l.warnOfMigrations.Do(func() {
			l.log.Info("StorageVersionMigration is served: the first such object makes kube-controller-manager panic "+
				"if its garbage collector is switched off and its storage-version-migrator-controller is not", "fix", Advice)
		})
	}
}

// listen finds out whether another collector is alive: at once, then every
// CanaryInterval, and when kube-controller-manager's lease changes hands.
func (l *Loop) listen(ctx context.Context) {
	if l.options.Beside {
		l.open(ctx) // what policies ask for is ours to do, whoever does the rest
	}
	if l.options.CanaryTimeout == 0 || l.options.DryRun {
		l.log.Info("Not looking for another collector", "canaryTimeout", l.options.CanaryTimeout, "dryRun", l.options.DryRun)
		l.open(ctx)
		return
	}
	for ctx.Err() == nil {
		holder, known := l.holder(ctx)
		if !l.sing(ctx) {
			wait(ctx, canaryRetry)
			continue
		}
		l.awaitReason(ctx, holder, known)
	}
}

// awaitReason waits until there is a reason to look again: the interval is
// over, or the lease's holder is another than before the last look.
func (l *Loop) awaitReason(ctx context.Context, holder string, known bool) {
	interval := l.options.CanaryInterval
	if l.gate.get() == Shut || l.company.missing() || l.keeper.Refuted() {
		interval = min(interval, shutInterval) // the other one may be told to stop any moment
	}
	due := l.now().Add(interval)
	for ctx.Err() == nil && l.now().Before(due) {
		if l.asked(ctx, min(leaseInterval, interval)) {
			l.hear(ctx)
			return
		}
		now, ok := l.holder(ctx)
		if ok && (!known || now != holder) {
			l.log.Info("Lease of kube-controller-manager changed hands", "from", holder, "to", now)
			return
		}
	}
}

// asked waits, and reports whether it is to be found out meanwhile who the other
// collector is.
func (l *Loop) asked(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return false
	case <-l.company.ask:
		return true
	}
}

// holder returns who holds kube-controller-manager's lease, if that can be read.
func (l *Loop) holder(ctx context.Context) (string, bool) {
	holder, err := canary.Holder(ctx, l.client)
	if err != nil && ctx.Err() == nil {
		l.log.V(1).Info("Could not read the lease of kube-controller-manager", "error", err.Error())
	}
	return holder, err == nil
}

// sing lets a canary out and sets the gate by what it found. It reports
// whether it found anything.
func (l *Loop) sing(ctx context.Context) bool {
	var canaryUID types.UID
	bird := canary.Canary{
		Client: l.client, Namespace: l.options.Namespace, Timeout: l.options.CanaryTimeout,
		Own: func(uid types.UID) {
			canaryUID = uid
			l.known.ours(uid)
		},
	}
	alive, err := bird.Sing(ctx)
	switch {
	case ctx.Err() != nil:
		return false
	case err != nil:
		l.log.Error(err, "Could not find out whether another garbage collector is running", "writing", l.gate.get() == Open,
			"fix", "let Gleaner create, get, patch and delete ConfigMaps in its namespace, or set --canary-timeout=0")
		return false
	case l.options.Beside && !l.company.certain(alive):
		l.log.Info("No other garbage collector has finished a canary yet, looking again", "canaryTimeout", l.options.CanaryTimeout)
		return false
	case l.options.Beside:
		l.found(ctx, alive, canaryUID)
	case alive:
		l.shut()
	default:
		l.open(ctx)
	}
	return true
}

func (l *Loop) open(ctx context.Context) {
	if ctx.Err() != nil {
		return // what it was opened on is not true any more
	}
	if l.gate.set(Open) {
		message := "Collecting"
		switch {
		case l.options.DryRun:
			message = "Deciding and recording, without writing anything"
		case l.options.Beside:
			message = "Doing what policies and finalizers ask for, beside another collector"
		}
		l.log.Info(message, "workers", l.options.Workers)
		l.known.sweep()
	}
}

// Advice says what to do about another collector.
const Advice = "start kube-controller-manager with --controllers=*,-garbage-collector-controller,-storage-version-migrator-controller " +
	"(leave --enable-garbage-collector as it is), or stop the other Gleaner"

func (l *Loop) shut() {
	if l.gate.set(Shut) {
		l.log.Error(nil, "Another garbage collector is running: writing nothing", "fix", Advice)
	}
}

func wait(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
