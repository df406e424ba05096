// Package guest is what goes on inside of a module, whatever host it runs on: a
// request is read, answered and written. Which host that is, in the sandbox or
// in a test, is the caller's.
package guest

import (
	"github.com/gleaner-dev/gleaner/hostabi"
)

// Host is what a module can ask of whoever runs it.
type Host interface {
	// ReadRequest copies the request if there is room for all of it, and gives
	// its length.
	ReadRequest(into []byte) int
	WriteVerdict(data []byte)
	Log(level hostabi.LogLevel, message string)
}

// room is what is read into at first; most requests fit.
const room = 32 << 10

// Serve answers one request. The error says why there is no verdict.
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
	data := make([]byte, room)
	length := host.ReadRequest(data)
	if length > len(data) {
		data = make([]byte, length)
		length = host.ReadRequest(data)
	}
	return decode(data[:length])
}
