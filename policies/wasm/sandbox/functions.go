package sandbox

import (
	"reflect"
	"weak"

	"github.com/tetratelabs/wazero/api"
)

// functions are exported functions of an instance that are not being called. The engine
// allocates a stack of 10 KiB and more for each, so they are used again until Go's garbage
// collector takes them.
//
// A function is used again only if its stack has not grown. Otherwise the size that it has
// reached would decide where the next deep recursion ends, and with it the verdict.
type functions map[string]weak.Pointer[function]

// function is an exported function with its stack. It runs one call at a time.
type function struct {
	call  api.Function
	stack int // its initial size in bytes
}

// take returns a function that no one else has; nil if the module does not export it.
func (f functions) take(m api.Module, name string) *function {
	if kept := f[name].Value(); kept != nil {
		delete(f, name)
		return kept
	}
	call := m.ExportedFunction(name)
	if call == nil {
		return nil
	}
	return &function{call, stackSize(call)}
}

// give keeps a function after a call without error. If it returned an error, its state is
// not known.
func (f functions) give(name string, used *function) {
	if used.stack != 0 && stackSize(used.call) == used.stack {
		f[name] = weak.Make(used)
	}
}

// stackSize returns the size of a function's stack in bytes, or 0 if it is not known. The
// engine does not export it: without it, functions are not used again, which is only
// slower.
func stackSize(f api.Function) int {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return 0
	}
	if stack := v.Elem().FieldByName("stack"); stack.Kind() == reflect.Slice {
		return stack.Len()
	}
	return 0
}
