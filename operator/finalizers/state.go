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

// loadState reads the saved state of the object. If it may be signed with a key that can't be
// read, the module is not evaluated: it would start from the beginning.
func (v *reconciler) loadState() (err error) {
	v.savedState = v.item.savedState
	if !v.persistsState() && (!v.savedState.Empty() || !objectstate.Supported(v.key.kind.Group)) {
		return nil
	}
	keys, keysErr := v.Keys()
	v.savedState, err = objectstate.ReadFinalizer(v.object, v.entry, keys)
	if err != nil && keysErr != nil {
		return fmt.Errorf("verify the state annotation: %w", keysErr)
	}
	return nil
}

// persistsState reports whether state is saved in the annotation. Roles and bindings have no
// state annotation, and Monitor mode writes nothing: then state is lost when the
// process ends.
func (v *reconciler) persistsState() bool {
	return objectstate.Supported(v.key.kind.Group) && v.f.Enforce
}

// saveState saves a state if it has changed, and clears an earlier Fail.
func (v *reconciler) saveState(ctx context.Context, state json.RawMessage) error {
	if !v.stateChanged(state) {
		return nil
	}
	if len(state) == 0 {
		state = v.savedState.State
	}
	v.savedState = objectstate.FinalizerState{Attempt: v.item.attempt, State: state}
	return v.writeState(ctx)
}

// stateChanged reports whether a state differs from the saved one.
func (v *reconciler) stateChanged(state json.RawMessage) bool {
	return v.savedState.Failed != "" || len(state) != 0 && !bytes.Equal(compactJSON(state), compactJSON(v.savedState.State))
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
func (v *reconciler) saveFailure(ctx context.Context, reason string) error {
	if reason == "" {
		reason = "the module gave no reason"
	}
	v.StateLimiter.Charge(v.f.String(), v.key.namespace, 1, v.Now()) // once for each state of the object
	v.savedState.Attempt, v.savedState.Failed, v.savedState.FailedInput = v.item.attempt, reason, v.inputIdentity(v.item.fingerprint)
	return v.writeState(ctx)
}

// failureMessage returns the message of a failure: the reason, and what must change for a
// new attempt.
func (v *reconciler) failureMessage(reason string) string {
	return fmt.Sprintf("%s; not retried until the object, the spec of %s or its module changes", reason, v.f)
}

// writeState saves the state, in the annotation if possible.
func (v *reconciler) writeState(ctx context.Context) error {
	if !v.persistsState() {
		v.item.savedState = v.savedState
		return nil
	}
	v.item.savedState = objectstate.FinalizerState{}
	keys, keysErr := v.Keys()
	if keysErr != nil {
		return fmt.Errorf("save state: %w", keysErr)
	}
	_, err := v.patch(ctx, writer.State, func(o metav1.Object) (map[string]any, error) {
		text, err := objectstate.ReadFinalizers(o).With(v.entry, v.savedState, keys)
		return map[string]any{"annotations": map[string]*string{objectstate.FinalizersAnnotation: text}}, err
	})
	if errors.Is(err, errGone) {
		v.removePending(v.key, false) // the object is gone
		return nil
	}
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	return nil
}

// inputIdentity identifies the input of a failed evaluation: the failure stands until any part
// of it changes.
func (v *reconciler) inputIdentity(fingerprint string) string {
	return fmt.Sprintf("%s %d %.12s %s", v.f.UID, v.f.Generation, v.f.Digest, fingerprint)
}
