//go:build !tinygo

package guest

// What warmRuntime allocates is on the heap, since it could be read here.
var (
	withoutPointers []byte  //nolint:unused // only written
	withPointers    []*byte //nolint:unused // only written
)

// warmRuntime makes Go's runtime get memory for small values of each size, and a larger stack.
// In a call, both would cost more than decoding the request.
func warmRuntime() {
	for size := 8; size <= 1024; size += 8 {
		withoutPointers, withPointers = make([]byte, size), make([]*byte, size/8)
	}
	growStack(16)
}

// growStack uses n KiB of stack.
//
//go:noinline
func growStack(n int) byte {
	var used [1024]byte
	used[n] = 1
	if n > 0 {
		return growStack(n-1) + used[n/2]
	}
	return used[0]
}
