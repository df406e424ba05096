package finalizers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

// A stateStore loads and saves the state of the finalizer's module for one object.
type stateStore struct {
	*patcher
	item  *pendingObject
	saved objectstate.FinalizerState
}

// load reads the saved state of the object. If it may be signed with a key that can't be
// read, the module is not evaluated: it would start from the beginning.
func (s *stateStore) load() (err error) {
	s.saved = s.item.savedState
	if !s.persists() && (!s.saved.Empty() || !objectstate.Supported(s.key.kind.Group)) {
		return nil
	}
	keys, keysErr := s.Keys()
	s.saved, err = objectstate.ReadFinalizer(s.object, s.entry, keys)
	if err != nil && keysErr != nil {
		return fmt.Errorf("verify the state annotation: %w", keysErr)
	}
	return nil
}

// persists reports whether state is saved in the annotation. Roles and bindings have no
// state annotation, and Monitor mode writes nothing: then state is lost when the
// process ends.
func (s *stateStore) persists() bool {
	return objectstate.Supported(s.key.kind.Group) && s.f.Enforce
}

// save saves a state if it has changed, and clears an earlier Fail.
func (s *stateStore) save(ctx context.Context, state json.RawMessage) error {
	if !s.changed(state) {
		return nil
	}
	if len(state) == 0 {
		state = s.saved.State
	}
	s.saved = objectstate.FinalizerState{Attempt: s.item.attempt, State: state}
	return s.store(ctx)
}

// changed reports whether a state differs from the saved one.
func (s *stateStore) changed(state json.RawMessage) bool {
	return s.saved.Failed != "" || len(state) != 0 && !bytes.Equal(compactJSON(state), compactJSON(s.saved.State))
}

func compactJSON(state json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, state) != nil {
		return state
	}
	return b.Bytes()
}

// saveFailure saves that the module returned Fail, so that it is not evaluated again before
// something has changed.
func (s *stateStore) saveFailure(ctx context.Context, reason string) error {
	if reason == "" {
		reason = "the module gave no reason"
	}
	s.StateLimiter.Charge(s.f.String(), s.key.namespace, 1, s.Now()) // once for each state of the object
	s.saved.Attempt, s.saved.Failed, s.saved.FailedInput = s.item.attempt, reason, s.f.inputIdentity(s.item.fingerprint)
	return s.store(ctx)
}

// store stores the state, in the annotation if possible.
func (s *stateStore) store(ctx context.Context) error {
	if !s.persists() {
		s.item.savedState = s.saved
		return nil
	}
	s.item.savedState = objectstate.FinalizerState{}
	keys, keysErr := s.Keys()
	if keysErr != nil {
		return fmt.Errorf("save state: %w", keysErr)
	}
	_, err := s.patch(ctx, writer.State, func(o metav1.Object) (map[string]any, error) {
		text, err := objectstate.ReadFinalizers(o).With(s.entry, s.saved, keys)
		return map[string]any{"annotations": map[string]*string{objectstate.FinalizersAnnotation: text}}, err
	})
	if errors.Is(err, errGone) {
		s.removePending(s.key, false) // the object is gone
		return nil
	}
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}
