package pause

import (
	"context"
	"time"

	"github.com/gleaner-dev/gleaner/operator/writer"
)

// retryInterval is when a write that was stopped is decided about again if the end of the pause
// was missed: normally, it is queued when the pause ends.
const retryInterval = time.Minute

// Step stops writes that a pause covers, except for those that let go what a user or another controller has deleted and
// that is archived now. It belongs before all steps with effects, so that
// nothing is archived in vain, and once more after those that take time.
type Step struct {
	// Current returns the pauses; an error if they are not known, which stops as well.
	Current func() (*Set, error)

	Now func() time.Time

	// Stopped is called with each write that a pause has stopped; optional.
	Stopped func(writer.Write, Pause)
}

// Admit implements writer.Step.
func (s Step) Admit(_ context.Context, w writer.Write) (writer.Admission, error) {
	if w.Effect == writer.Protects || w.Effect == writer.State || w.Origin == writer.Archive {
		return writer.Admission{Outcome: writer.Pass}, nil
	}
	set, err := s.Current()
	if err != nil {
		return writer.Admission{Outcome: writer.Wait, Reason: err.Error()}, nil //nolint:nilerr // the write has not failed: it waits
	}
	p, is := set.Stopping(w.Target.Namespace, w.Cause.Policy, s.Now())
	if !is {
		return writer.Admission{Outcome: writer.Pass}, nil
	}
	if s.Stopped != nil {
		s.Stopped(w, p)
	}
	return writer.Admission{Outcome: writer.Wait, Reason: Message(p), Retry: retryInterval}, nil
}

// Settle implements writer.Step.
func (Step) Settle(context.Context, writer.Write, writer.Settlement) {}

// Message says that something was stopped by a pause, for people.
func Message(p Pause) string {
	text := "paused by " + p.String()
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	if !p.Until.IsZero() {
		text += " until " + p.Until.UTC().Format(time.RFC3339)
	}
	return text
}
