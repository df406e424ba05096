package modulestore

import (
	"context"
	"time"
)

// Try fetches and compiles a module that is inline, without keeping it: before it is stored. The error is a
// *source.Error or a *CompileError if the module is to blame. A module from elsewhere is not tried.
func (s *Store) Try(ctx context.Context, r Resource) error {
	if r.inlineSize() == 0 {
		return nil
	}
	fetched, err := s.options.Fetch(ctx, r)
	if err != nil {
		return err
	}
	key := contentKey{r.Namespace, r.engine(), fetched.Digest}
	if known, err := s.outcome(key); known {
		return err
	}
	release, err := s.compileSlots.acquire(ctx, r.Namespace)
	if err != nil {
		return err
	}
	defer release()
	compiled, err := s.options.Compiler.Compile(ctx, CompileRequest{
		Engine: key.engine, Name: r.String(), Namespace: r.Namespace, Files: fetched.Files, Digest: fetched.Digest,
	})
	if err == nil {
		compiled.Close()
	}
	return err
}

// outcome returns the outcome of an earlier compilation, if that is still valid.
func (s *Store) outcome(key contentKey) (known bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.contents[key]
	if !ok || !c.hasOutcome(time.Now()) {
		return false, nil
	}
	return true, c.err
}

// TryUse validates the settings of a use without keeping an instance: before the policy or finalizer is
// stored. The state is Ready, without an Evaluator, or Failed; it is Loading if ctx has ended, or the module was freed.
func (s *Store) TryUse(ctx context.Context, u Use) UseState {
	c := u.Module.content
	s.mu.Lock()
	if s.contents[c.key] != c {
		s.mu.Unlock()
		return UseState{Step: Starting}
	}
	c.references++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.releaseContent(c)
	}()
	if !validates(c) {
		return UseState{Phase: Ready}
	}
	release, err := s.startSlots.acquire(ctx, u.Settings.Namespace)
	if err != nil {
		return UseState{Step: Starting}
	}
	defer release()
	instance, err := c.compiled.Start(ctx, StartOptions{Policy: u.Policy, Namespace: u.Settings.Namespace, Limits: u.Limits})
	if err == nil {
		defer instance.Close()
		err = s.validateSettings(ctx, instance, u.Settings)
	}
	switch {
	case ctx.Err() != nil:
		return UseState{Step: Validating}
	case err != nil:
		return UseState{Phase: Failed, Step: Validating, Err: err}
	}
	return UseState{Phase: Ready}
}
