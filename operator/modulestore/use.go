package modulestore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

// startTimeout bounds the start of an instance, and again the validation of settings,
// independent of the instance's limits.
const startTimeout = time.Minute

// A Use is the use of a module by a policy or finalizer.
type Use struct {
	UID      types.UID // of the policy or finalizer
	Policy   string    // as in GCPolicy shop/keep-data
	Module   Module
	Limits   Limits
	Settings hostabi.Policy // validated by the module's validate hook, if it has one
}

// A useKey identifies an instance.
type useKey struct {
	policy  string
	uid     types.UID // may be empty for policies from files
	content *content
	limits  Limits
}

// A use is an instance and the validation of its settings. Mutable fields are protected
// by Store.mu.
type use struct {
	job
	useKey
	namespace string // of the policy

	settings  hostabi.Policy
	version   int // of the settings
	state     UseState
	handle    *handle // nil: not started
	failures  int
	retiredAt time.Time // when the latest snapshot stopped using it; zero: in use
	evicted   bool      // freed without waiting for retirePeriod
}

// Uses collects the uses of modules by one snapshot.
type Uses struct {
	store *Store
	all   map[useKey]struct{}
}

// NewUses returns the Uses of a new snapshot.
func (s *Store) NewUses() *Uses { return &Uses{store: s, all: map[useKey]struct{}{}} }

// Get returns the state of a use. It starts the instance and the validation of its
// settings if necessary.
func (u *Uses) Get(wanted Use) UseState {
	s := u.store
	s.mu.Lock()
	defer s.mu.Unlock()
	key, now := useKey{wanted.Policy, wanted.UID, wanted.Module.content, wanted.Limits}, time.Now()
	if s.contents[key.content.key] != key.content {
		return UseState{Step: Starting, Since: now} // freed since Store.Get, which will be called again
	}
	u.all[key] = struct{}{}
	existing, ok := s.uses[key]
	if !ok {
		key.content.references++
		existing = &use{
			useKey: key, namespace: wanted.Settings.Namespace,
			settings: wanted.Settings, state: UseState{Step: Starting},
		}
		s.uses[key] = existing
	}
	switch {
	case validates(key.content) && !sameSettings(existing.settings, wanted.Settings):
		existing.settings, existing.state = wanted.Settings, UseState{Step: Validating}
		existing.reschedule(now)
	case existing.state.Phase == Loading && (!ok || !existing.retiredAt.IsZero()):
		existing.reschedule(now)
	}
	existing.retiredAt, existing.evicted = time.Time{}, false
	s.wakeLoop()
	return existing.state
}

// reschedule schedules the start and validation of the use; the caller holds mu.
func (u *use) reschedule(now time.Time) {
	u.stop()
	u.version++
	u.due, u.failures, u.state.Since = now, 0, now
}

func sameSettings(a, b hostabi.Policy) bool {
	one, err := json.Marshal(a)
	other, err2 := json.Marshal(b)
	return err == nil && err2 == nil && slices.Equal(one, other)
}

// Commit completes a snapshot: instances that it does not use are freed after retirePeriod.
// Snapshots must be built one at a time, since the latest one counts.
func (u *Uses) Commit() {
	s := u.store
	defer s.wakeLoop()
	s.mu.Lock()
	defer s.mu.Unlock()
	now, newest := time.Now(), map[string]*use{}
	for key, existing := range s.uses {
		if _, used := u.all[key]; used {
			continue
		}
		if existing.retiredAt.IsZero() {
			existing.retiredAt = now
			existing.stop()
		}
		// Only one replaced instance is kept for each policy, so that frequent changes of a
		// module do not exhaust memory.
		other := newest[key.policy]
		switch {
		case other == nil:
			newest[key.policy] = existing
		case other.retiredAt.Before(existing.retiredAt):
			other.evicted, newest[key.policy] = true, existing
		default:
			existing.evicted = true
		}
	}
}

// expired reports whether the use can be freed; the caller holds mu.
func (u *use) expired(now time.Time) bool {
	return !u.retiredAt.IsZero() && !u.running && (u.handle == nil || u.evicted || !now.Before(u.retiredAt.Add(retirePeriod)))
}

// closeUse frees an instance that was removed from the Store.
func (s *Store) closeUse(u *use) {
	if u.handle != nil {
		u.handle.close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseContent(u.content)
}

// prepare starts an instance and validates its settings.
func (s *Store) prepare(ctx context.Context, u *use) {
	release, err := s.startSlots.acquire(ctx, u.namespace)
	if err != nil {
		return
	}
	defer release()
	began := time.Now()
	if err := s.startInstance(ctx, u); err != nil {
		s.finishPrepare(ctx, u, u.currentVersion(s), UseState{Phase: Failed, Step: Starting, Err: err}, time.Since(began))
		return
	}
	s.mu.Lock()
	version, settings, h := u.version, u.settings, u.handle
	if u.state.Phase == Loading {
		u.state.Step = Validating
	}
	s.mu.Unlock()
	state := UseState{Phase: Ready, Evaluator: h}
	if err := s.validate(ctx, u, h, settings); err != nil {
		state = UseState{Phase: Failed, Step: Validating, Err: err}
	}
	s.finishPrepare(ctx, u, version, state, time.Since(began))
}

func (u *use) currentVersion(s *Store) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return u.version
}

// startInstance starts the instance unless it is started.
func (s *Store) startInstance(ctx context.Context, u *use) error {
	s.mu.Lock()
	started, compiled := u.handle != nil, u.content.compiled
	s.mu.Unlock()
	if started {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	i, err := compiled.Start(ctx, StartOptions{Policy: u.policy, Namespace: u.namespace, Limits: u.limits})
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	u.handle = newHandle(u.policy, i)
	return nil
}

// validates reports whether a module validates settings.
func validates(c *content) bool { return slices.Contains(c.hooks, hostabi.HookValidate) }

// validate validates the settings by the module's validate hook, if it has one.
func (s *Store) validate(ctx context.Context, u *use, h *handle, settings hostabi.Policy) error {
	if !validates(u.content) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	return s.validateSettings(ctx, h, settings)
}

func (s *Store) validateSettings(ctx context.Context, by policies.MeteredEvaluator, settings hostabi.Policy) error {
	evaluation, err := by.EvaluateMetered(ctx, hostabi.Request{
		APIVersion: hostabi.Version, Hook: hostabi.HookValidate, Attempt: 1, Round: 1, Time: s.options.Now().UTC(), Policy: settings,
	})
	switch {
	case err != nil:
		return fmt.Errorf("validate settings: %w", err)
	case evaluation.Verdict.Decision != hostabi.DecisionValid:
		return &SettingsError{Reason: evaluation.Verdict.Reason}
	}
	return nil
}

// finishPrepare stores the state of a use, unless its settings have changed.
func (s *Store) finishPrepare(ctx context.Context, u *use, version int, state UseState, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.version != version || ctx.Err() != nil {
		return
	}
	now := time.Now()
	state.Since = now
	if state.Phase == Failed {
		u.failures++
		if !isPermanent(state.Err) {
			u.due = now.Add(workBackoff(u.failures, took))
			state.NextRetry = u.due
		}
	}
	was := u.state
	u.state = state
	if was.Phase != state.Phase || was.Step != state.Step || errorText(was.Err) != errorText(state.Err) {
		s.publish()
	}
}

// isPermanent reports whether another attempt would fail in the same way.
func isPermanent(err error) bool {
	settings, fault := (*SettingsError)(nil), (*policies.Fault)(nil)
	if errors.As(err, &settings) {
		return true
	}
	if !errors.As(err, &fault) {
		return false
	}
	switch fault.Kind {
	case policies.FaultRejected, policies.FaultMissingHook, policies.FaultFuelExhausted, policies.FaultMemoryLimit,
		policies.FaultTrapped, policies.FaultInvalidCall, policies.FaultNoVerdict, policies.FaultInvalidVerdict:
		return true
	case policies.FaultTimedOut, policies.FaultCrashed, policies.FaultQuarantined:
		return false // may succeed later
	default:
		return false
	}
}
