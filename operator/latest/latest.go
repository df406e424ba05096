// Package latest provides a value that one component publishes and others read. A new
// value replaces the previous one, and publishing never blocks.
//
// It keeps no history and has no callbacks.
package latest

import "sync"

// Value holds the latest published value. The zero Value is empty. Its methods may be
// called concurrently.
type Value[T any] struct {
	mu      sync.Mutex // covers what follows
	value   T
	stored  bool
	changed chan struct{} // closed by the next Store; nil until Changed is called
}

// Load returns the latest value; ok is false before the first Store.
func (v *Value[T]) Load() (value T, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.value, v.stored
}

// Store publishes a value and closes the channel of Changed.
func (v *Value[T]) Store(value T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value, v.stored = value, true
	v.notify()
}

// Update publishes the result of change for the latest value, which is the zero value
// before the first Store. The function must not call methods of the Value.
func (v *Value[T]) Update(change func(T) T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value, v.stored = change(v.value), true
	v.notify()
}

// notify closes the channel of Changed. The caller holds mu.
func (v *Value[T]) notify() {
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}

// Changed returns a channel that is closed when a value is published after this call.
// Call it before Load, so that no value is missed between the two.
func (v *Value[T]) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.changed
}
