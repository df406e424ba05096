//go:build wasip1

package guest

import (
	"unsafe"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// Current is the host of the current call.
var Current Host = sandbox{}

//go:wasmimport gleaner_v1 request_read
func requestRead(ptr unsafe.Pointer, limit uint32) (length uint32)

//go:wasmimport gleaner_v1 verdict_write
func verdictWrite(ptr unsafe.Pointer, length uint32)

//go:wasmimport gleaner_v1 log
func log(level uint32, ptr unsafe.Pointer, length uint32)

// sandbox is the host that runs this module.
type sandbox struct{}

// buffer is where a request is read to, if it fits, as most do. After each call the host
// restores what was written, so memory that is neither cleared nor allocated for it
// costs least.
var buffer [32 << 10]byte

// ReadRequest implements Host.
func (sandbox) ReadRequest() []byte {
	data := buffer[:]
	length := read(data)
	if length > len(data) {
		data = make([]byte, length)
		length = read(data)
	}
	return data[:length]
}

// read copies the request if it fits, and returns its length.
func read(into []byte) int {
	return int(requestRead(unsafe.Pointer(unsafe.SliceData(into)), uint32(len(into))))
}

// WriteVerdict implements Host.
func (sandbox) WriteVerdict(data []byte) {
	verdictWrite(unsafe.Pointer(unsafe.SliceData(data)), uint32(len(data)))
}

// Log implements Host.
func (sandbox) Log(level hostabi.LogLevel, message string) {
	log(uint32(level), unsafe.Pointer(unsafe.StringData(message)), uint32(len(message)))
}

// The module's initialization is not part of any call.
func init() {
	if err := warm(); err != nil {
		panic(err) // a bug in this package
	}
}
