package evaluate

import (
	"context"
	"fmt"

	"github.com/gleaner-dev/gleaner/operator/objectstate"
)

// inheritGracePeriod gives a verdict the grace period of the request to delete the object, if the verdict says so and the
// request has one. Like evaluateAll, it reports whether the result is final.
func (s *session) inheritGracePeriod(ctx context.Context, result *Result) (final bool) {
	if !result.Verdict.InheritGracePeriod || !s.input.Facts.Object.Terminating {
		return false
	}
	object, err := s.read(ctx)
	switch {
	case s.changed != nil:
		*result = Result{Changed: s.changed}
		return true
	case err != nil:
		return result.setFault(fmt.Errorf("read the grace period of the request: %w", err))
	}
	keys, missing := s.StateKeys()
	seconds, status := objectstate.ReadGracePeriod(object, keys)
	switch {
	case status == objectstate.Valid:
		result.Verdict.GracePeriodSeconds = &seconds
	case status == objectstate.Unverified && missing != nil:
		return result.setFault(fmt.Errorf("verify the grace period of the request: %w", missing))
	}
	return false
}
