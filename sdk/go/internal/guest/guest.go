// Package guest is the part of the SDK within a module that does not depend on the
// host: it decodes a request, evaluates it, and encodes the verdict. The host is
// the sandbox or a test.
package guest

import (
	"github.com/gleaner-dev/gleaner/hostabi"
)

// Host is the host of a module.
type Host interface {
	// ReadRequest returns the request, which is not changed afterward.
	ReadRequest() []byte
	WriteVerdict(data []byte)
	Log(level hostabi.LogLevel, message string)
}

// Serve evaluates one request. The error says why there is no verdict.
func Serve(host Host, handler func(hostabi.Request) (hostabi.Verdict, error)) error {
	request, err := decode(host.ReadRequest())
	if err != nil {
		return err
	}
	verdict, err := handler(request)
	if err != nil {
		return err
	}
	data, err := hostabi.MarshalVerdict(verdict)
	if err != nil {
		return err
	}
	host.WriteVerdict(data)
	return nil
}
