//go:build tinygo

package guest

// warmRuntime does nothing: memory that TinyGo's runtime has given out is not used again.
func warmRuntime() {}
