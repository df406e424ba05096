package admission

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"

	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

const (
	// retryInterval is when an installation that failed is tried again.
	retryInterval = 10 * time.Second

	// ResyncInterval is when what was installed is installed again, in case that others have changed or deleted it.
	ResyncInterval = 30 * time.Second
)

// Failures is why admission objects are not installed, by their names; "" is about all.
type Failures map[string]error

// Of returns the reason for one admission object; nil if there is none.
func (f Failures) Of(name string) error {
	if f[""] != nil {
		return f[""]
	}
	return f[name]
}

// Status is what was installed.
type Status struct {
	Term     uint64   // of leadership, in which it was installed
	Revision uint64   // of the snapshot that it was installed for
	Failed   Failures // may be of an earlier snapshot for what is installed by now
}

// Installation installs admission objects.
type Installation interface {
	// Install installs what a snapshot requires, and removes the rest.
	Install(context.Context, *policyset.Snapshot) Failures

	// Inputs returns what else Install depends on, other than the certificate of the webhook: when that changes, it is
	// called again.
	Inputs(*policyset.Snapshot) string
}

// LoopOptions configure a Loop.
type LoopOptions struct {
	Snapshots *policyset.Publisher
	Gate      *gate.Gate        // only the leader installs
	Webhook   *webhook.Endpoint // nil: there is none
	Resync    time.Duration     // 0: what is installed is not installed again
	Failure   string            // what is logged if something can't be installed
	Now       func() time.Time
	Log       logr.Logger
}

// Loop has an Installation install what the current snapshot of policies requires. Create it with NewLoop.
type Loop struct {
	options LoopOptions
	by      Installation
	status  latest.Value[Status]

	// Of the last installation; for the goroutine of Run:
	identity webhook.Identity
	inputs   string
	at       time.Time
}

// NewLoop returns a Loop.
func NewLoop(o LoopOptions, by Installation) *Loop { return &Loop{options: o, by: by} }

// Status returns what was installed last.
func (l *Loop) Status() *latest.Value[Status] { return &l.status }

// Run installs what each snapshot requires, while this replica leads, until ctx ends.
func (l *Loop) Run(ctx context.Context) error {
	tick := time.NewTicker(retryInterval)
	defer tick.Stop()
	for {
		snapshots, leading := l.options.Snapshots.Changed(), l.options.Gate.Changed()
		var identity <-chan struct{}
		if l.options.Webhook != nil {
			identity = l.options.Webhook.Identity.Changed()
		}
		l.Update(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-snapshots:
		case <-leading:
		case <-identity:
		case <-tick.C:
		}
	}
}

// Update installs what the current snapshot requires, unless that was done.
func (l *Loop) Update(ctx context.Context) {
	s, state := l.options.Snapshots.Current(), l.options.Gate.State()
	if s == nil || !state.Leading {
		return
	}
	identity, inputs, now := webhook.Identity{}, l.by.Inputs(s), l.options.Now()
	if l.options.Webhook != nil {
		identity = l.options.Webhook.Current()
	}
	last, _ := l.status.Load()
	done := last.Term == state.Term && last.Revision == s.Revision && len(last.Failed) == 0
	recent := l.options.Resync == 0 || now.Sub(l.at) < l.options.Resync
	if done && recent && identity.Equal(l.identity) && inputs == l.inputs {
		return
	}
	l.identity, l.inputs, l.at = identity, inputs, now
	failed := l.by.Install(ctx, s)
	if ctx.Err() != nil {
		return
	}
	if why := fmt.Sprint(failed); len(failed) != 0 && why != fmt.Sprint(last.Failed) {
		l.options.Log.Info(l.options.Failure, "why", why)
	}
	if next := (Status{Term: state.Term, Revision: s.Revision, Failed: failed}); fmt.Sprint(next) != fmt.Sprint(last) {
		l.status.Store(next)
	}
}
