package finalize

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/operator/memo"
)

// recall finds what is remembered of the object. While it may be that the operator has
// signed it with a key that can't be read, the module is not asked: it would begin anew.
func (v *visitor) recall() (err error) {
	v.memory = v.track.memory
	if !v.remembers() && (!v.memory.empty() || !memo.Fits(v.key.kind.Group)) {
		return nil
	}
	keys, missing := v.Keys()
	v.memory, err = memoryOf(v.object, v.entry, keys)
	if err != nil && missing != nil {
		return fmt.Errorf("verify the state annotation: %w", missing)
	}
	return nil
}

// remembers reports whether what is remembered is written onto the object. A role or
// a binding has no annotation of ours, and Monitor writes nothing: then it is
// lost with the process.
func (v *visitor) remembers() bool { return memo.Fits(v.key.kind.Group) && v.f.Enforce }

// remember keeps a state, if that is another than before. That the module gave up
// once is forgotten: it has thought better of it.
func (v *visitor) remember(ctx context.Context, state json.RawMessage) error {
	if !v.isNew(state) {
		return nil
	}
	if len(state) == 0 {
		state = v.memory.State
	}
	v.memory = memory{Attempt: v.track.attempt, State: state}
	return v.writeMemory(ctx)
}

// isNew reports whether a state is another than what is remembered.
func (v *visitor) isNew(state json.RawMessage) bool {
	return v.memory.Failed != "" || len(state) != 0 && !bytes.Equal(compact(state), compact(v.memory.State))
}

func compact(state json.RawMessage) []byte {
	var b bytes.Buffer
	if json.Compact(&b, state) != nil {
		return state
	}
	return b.Bytes()
}

// fail remembers that the module has given up, so that it is not asked again before
// something has changed.
func (v *visitor) fail(ctx context.Context, reason string) error {
	if reason == "" {
		reason = "the module gave no reason"
	}
	v.States.Charge(v.f.String(), v.key.namespace, 1, v.Now()) // once for each state of the object
	v.memory.Attempt, v.memory.Failed, v.memory.Of = v.track.attempt, reason, v.identity(v.track.face)
	return v.writeMemory(ctx)
}

// untilChanged says what has to change for the module to be asked again that gave up for
// a reason.
func (v *visitor) untilChanged(reason string) string {
	return fmt.Sprintf("%s; not retried until the object, the spec of %s or its module changes", reason, v.f)
}

// writeMemory keeps what is remembered.
func (v *visitor) writeMemory(ctx context.Context) error {
	if !v.remembers() {
		v.track.memory = v.memory
		return nil
	}
	v.track.memory = memory{}
	keys, missing := v.Keys()
	if missing != nil {
		return fmt.Errorf("remember what the module said: %w", missing)
	}
	_, err := v.write(ctx, func(o metav1.Object) (map[string]any, error) {
		text, err := notebookOf(o).with(v.entry, v.memory, keys)
		return map[string]any{"annotations": map[string]*string{Annotation: text}}, err
	})
	if errors.Is(err, errGone) {
		v.drop(v.key, false) // and nothing more is done about it
		return nil
	}
	if err != nil {
		return fmt.Errorf("remember what the module said: %w", err)
	}
	return nil
}

// identity is what a failure is about: it stands until any of it changes.
func (v *visitor) identity(face string) string {
	return fmt.Sprintf("%s %d %.12s %s", v.f.UID, v.f.Generation, v.f.Digest, face)
}
