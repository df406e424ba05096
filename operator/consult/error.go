package consult

import (
	"context"
	"errors"

	"github.com/gleaner-dev/gleaner/policies"
)

// errUnread is why everything is kept at first.
var errUnread = errors.New("the policies have not been read yet")

// errUnknown is why an object is kept whose type is gone, be it for a moment: policies
// name resources, so nobody can tell which of them govern it.
var errUnknown = errors.New("its type is not served at this moment, so which policies govern it is not known")

// errNotReady is a policy that can't be asked.
var errNotReady = errors.New("it is not ready")

// ours is an error that no policy is to blame for: something could not be read, or a
// call was cut off. It is gone the next time, and until then the object is kept,
// whatever onFault says: that is for modules.
type ours struct{ error }

// Unwrap returns what went wrong.
func (o ours) Unwrap() error { return o.error }

// isCutOff reports whether a call ended since whoever made it was out of time. That a
// module takes too long is a Fault.
func isCutOff(err error) bool {
	return (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) && !errors.As(err, new(*policies.Fault))
}
