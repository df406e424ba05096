package run

import (
	"context"
	"time"

	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/gate"
)

// follower does what changes of published values require. Its methods run until their
// context ends.
type follower struct{ *Operator }

// policyChanges queues what each new snapshot may concern.
func (f follower) policyChanges(ctx context.Context) error {
	var revision uint64
	for {
		changed := f.snapshots.Changed()
		if s := f.snapshots.Current(); s != nil && s.Revision != revision {
			revision = s.Revision
			f.policiesChanged()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// gateChanges queues everything when the gate is opened. A lapse of the lease does not count
// as closed: what was postponed then is retried.
func (f follower) gateChanges(ctx context.Context) error {
	open, term := false, uint64(0)
	for {
		changed := f.gate.Changed()
		s := f.gate.State()
		now := s.Probe == gate.Open || s.Lapsed
		if now && (!open || s.Term != term) {
			f.store.Sweep()
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
func (f follower) removeCompanion(ctx context.Context, objects *admission.Objects) error {
	tick := time.NewTicker(removalRetryInterval)
	defer tick.Stop()
	for {
		changed := f.gate.Changed()
		if s := f.gate.State(); s.Leading && s.Probe == gate.Open && f.snapshots.Current() != nil {
			err := companion.Remove(ctx, objects)
			if err == nil {
				<-ctx.Done() // a manager ends when a runnable returns
				return nil
			}
			if ctx.Err() == nil {
				f.log.Error(err, "Could not remove what companion mode has installed")
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
