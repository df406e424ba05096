// Package guest is the part of the SDK within a module that does not depend on the
// host: it decodes a request, evaluates it, and encodes the verdict. The host is
// the sandbox or a test.
package guest

import (
	"github.com/gleaner-dev/gleaner/hostabi"
)

// Host is the host of a module.
type Host interface {
	// ReadRequest copies the request if it fits, and returns its length.
	ReadRequest(into []byte) int
	WriteVerdict(data []byte)
	Log(level hostabi.LogLevel, message string)
}

// initialBuffer is the size of the first read buffer; most requests fit.
const initialBuffer = 32 << 10

// Serve evaluates one request. The error says why there is no verdict.
func Serve(host Host, handler func(hostabi.Request) (hostabi.Verdict, error)) error {
	request, err := read(host)
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

func read(host Host) (hostabi.Request, error) {
	data := make([]byte, initialBuffer)
	length := host.ReadRequest(data)
	if length > len(data) {
		data = make([]byte, length)
		length = host.ReadRequest(data)
	}
	return decode(data[:length])
}
