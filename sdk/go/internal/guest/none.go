//go:build !wasip1

package guest

import "github.com/gleaner-dev/gleaner/hostabi"

// Current is the host of the current call. A test sets it.
var Current Host = noHost{}

// noHost is the host outside of a sandbox and of gleanertest.
type noHost struct{}

// ReadRequest implements Host.
func (noHost) ReadRequest() []byte {
	panic("no host: test a handler with gleanertest.Call")
}

// WriteVerdict implements Host.
func (noHost) WriteVerdict([]byte) {}

// Log implements Host.
func (noHost) Log(hostabi.LogLevel, string) {}
