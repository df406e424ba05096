//go:build !wasip1

package guest

import "github.com/gleaner-dev/gleaner/hostabi"

// Current is the host of the call that is going on. A test sets it.
var Current Host = none{}

// none is the host where there is none: outside of a sandbox and of gleanertest.
type none struct{}

// ReadRequest implements Host.
func (none) ReadRequest([]byte) int {
	panic("there is no host here: test a handler with gleanertest.Call")
}

// WriteVerdict implements Host.
func (none) WriteVerdict([]byte) {}

// Log implements Host.
func (none) Log(hostabi.LogLevel, string) {}
