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

// startTimeout bounds how long an instance may take to start, and as long to validate
// settings, whatever its own limits are.
const startTimeout = time.Minute

// Use is a policy or finalizer that evaluates a module.
type Use struct {
	UID      types.UID // of the policy or finalizer
	Policy   string    // as in GCPolicy shop/keep-data
	Module   Module
	Limits   Limits
	Settings hostabi.Policy // what the module's validate hook is shown, if it has one
}

// useKey is what an instance is started for.
type useKey struct {
	policy  string
	uid     types.UID // in files there need not be one
	content *content
	limits  Limits
}

// use is an instance, and what its module says of the settings. Under Store.mu, but for
// what never changes.
type use struct {
	job
	useKey
	namespace string // of the policy

	settings hostabi.Policy
	version  int // of the settings
	state    UseState
	handle   *handle // nil: it has not started
	failures int
	retired  time.Time // since when no snapshot has it; zero: one has
	evicted  bool      // it is freed without waiting for more calls to begin
}

// Uses are the uses of modules by one snapshot.
type Uses struct {
	store *Store
	all   map[useKey]struct{}
}

// NewUses begins a snapshot.
func (s *Store) NewUses() *Uses { return &Uses{store: s, all: map[useKey]struct{}{}} }

// Get returns what has become of a use, which is started, and has its settings
// validated, if that has not been done yet.
func (u *Uses) Get(wanted Use) UseState {
	s := u.store
	s.mu.Lock()
	defer s.mu.Unlock()
	key, now := useKey{wanted.Policy, wanted.UID, wanted.Module.content, wanted.Limits}, time.Now()
	if s.contents[key.content.key] != key.content {
		return UseState{Step: Starting, Since: now} // it was freed since Get, which will be called again
	}
	u.all[key] = struct{}{}
	of, ok := s.uses[key]
	if !ok {
		key.content.users++
		of = &use{
			useKey: key, namespace: wanted.Settings.Namespace,
			settings: wanted.Settings, state: UseState{Step: Starting},
		}
		s.uses[key] = of
	}
	validates := slices.Contains(key.content.hooks, hostabi.HookValidate)
	switch {
	case validates && !sameSettings(of.settings, wanted.Settings):
		of.settings, of.state = wanted.Settings, UseState{Step: Validating}
		of.prepareAgain(now)
	case of.state.Phase == Loading && (!ok || !of.retired.IsZero()):
		of.prepareAgain(now)
	}
	of.retired, of.evicted = time.Time{}, false
	s.wakeUp()
	return of.state
}

// prepareAgain has the use started and validated from the beginning; the caller holds mu.
func (u *use) prepareAgain(now time.Time) {
	u.stop()
	u.version++
	u.due, u.failures, u.state.Since = now, 0, now
}

func sameSettings(a, b hostabi.Policy) bool {
	one, err := json.Marshal(a)
	other, err2 := json.Marshal(b)
	return err == nil && err2 == nil && slices.Equal(one, other)
}

// Commit ends a snapshot: what it does not use is freed, once the last calls are over.
// The latest snapshot counts, so only one is built at a time.
func (u *Uses) Commit() {
	s := u.store
	defer s.wakeUp()
	s.mu.Lock()
	defer s.mu.Unlock()
	now, newest := time.Now(), map[string]*use{}
	for key, of := range s.uses {
		if _, is := u.all[key]; is {
			continue
		}
		if of.retired.IsZero() {
			of.retired = now
			of.stop()
		}
		// Of those that were replaced, one is kept for each policy: whoever changes a module
		// again and again must not fill the memory.
		other := newest[key.policy]
		switch {
		case other == nil:
			newest[key.policy] = of
		case other.retired.Before(of.retired):
			other.evicted, newest[key.policy] = true, of
		default:
			of.evicted = true
		}
	}
}

// expired reports whether the use can be freed; the caller holds mu.
func (u *use) expired(now time.Time) bool {
	return !u.retired.IsZero() && !u.running && (u.handle == nil || u.evicted || !now.Before(u.retired.Add(lastCalls)))
}

// end frees an instance. It is no longer in the Store.
func (s *Store) end(u *use) {
	if u.handle != nil {
		u.handle.close()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.leave(u.content)
}

// prepare starts an instance, and has it validate the settings.
func (s *Store) prepare(ctx context.Context, u *use) {
	release, err := s.booting.acquire(ctx, u.namespace)
	if err != nil {
		return
	}
	defer release()
	began := time.Now()
	if err := s.boot(ctx, u); err != nil {
		s.prepared(ctx, u, u.currentVersion(s), UseState{Phase: Failed, Step: Starting, Err: err}, time.Since(began))
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
	s.prepared(ctx, u, version, state, time.Since(began))
}

func (u *use) currentVersion(s *Store) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return u.version
}

// boot starts the instance, if it has not been started.
func (s *Store) boot(ctx context.Context, u *use) error {
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

// validate has the module look at the settings.
func (s *Store) validate(ctx context.Context, u *use, h *handle, settings hostabi.Policy) error {
	if !slices.Contains(u.content.hooks, hostabi.HookValidate) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	answer, err := h.Ask(ctx, hostabi.Request{
		APIVersion: hostabi.Version, Hook: hostabi.HookValidate, Attempt: 1, Round: 1, Time: s.options.Now().UTC(), Policy: settings,
	})
	switch {
	case err != nil:
		return fmt.Errorf("validate settings: %w", err)
	case answer.Verdict.Decision != hostabi.DecisionValid:
		return &SettingsError{Reason: answer.Verdict.Reason}
	}
	return nil
}

// prepared notes what has come of a use, if its settings are still those.
func (s *Store) prepared(ctx context.Context, u *use, version int, state UseState, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if u.version != version || ctx.Err() != nil {
		return
	}
	now := time.Now()
	state.Since = now
	if state.Phase == Failed {
		u.failures++
		if !final(state.Err) {
			u.due = now.Add(rework(u.failures, took))
			state.NextRetry = u.due
		}
	}
	was := u.state
	u.state = state
	if was.Phase != state.Phase || was.Step != state.Step || text(was.Err) != text(state.Err) {
		s.publish()
	}
}

// final reports whether the same is bound to come of another attempt.
func final(err error) bool {
	settings, fault := (*SettingsError)(nil), (*policies.Fault)(nil)
	if errors.As(err, &settings) {
		return true
	}
	if !errors.As(err, &fault) {
		return false
	}
	switch fault.Kind {
	case policies.FaultRefused, policies.FaultMissingHook, policies.FaultExhausted, policies.FaultMemoryLimit,
		policies.FaultTrapped, policies.FaultMisuse, policies.FaultNoVerdict, policies.FaultBadVerdict:
		return true
	case policies.FaultTimedOut, policies.FaultCrashed, policies.FaultQuarantined:
		return false // another time it may be otherwise
	default:
		return false
	}
}
