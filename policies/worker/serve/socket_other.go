//go:build !unix

package serve

// isSocket returns false: the operator starts no sandboxes here.
func isSocket(int) bool { return false }
