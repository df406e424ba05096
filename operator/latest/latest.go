// Package latest carries values that one component publishes and others read:
// the newest value replaces the one before, and nobody waits for a reader.
//
// It keeps no history, and it calls nobody back.
package latest

import "sync"

// Value is the latest value that was published. The zero Value has none yet. Its
// methods may be called concurrently.
type Value[T any] struct {
	mu      sync.Mutex // covers what follows
	value   T
	stored  bool
	changed chan struct{} // closed by the next Store; nil until somebody asks for it
}

// Load returns the latest value; ok is false until there is one.
func (v *Value[T]) Load() (value T, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.value, v.stored
}

// Store publishes a value, and wakes everybody who waits for a change.
func (v *Value[T]) Store(value T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value, v.stored = value, true
	v.wake()
}

// Update publishes what a function makes of the latest value, which is the zero value
// until there is one. The function must not call methods of the Value.
func (v *Value[T]) Update(change func(T) T) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.value, v.stored = change(v.value), true
	v.wake()
}

// wake closes the channel of those who wait; the caller holds mu.
func (v *Value[T]) wake() {
	if v.changed != nil {
		close(v.changed)
		v.changed = nil
	}
}

// Changed returns a channel that is closed when a value is published after this call.
// Ask for it before Load, so that no value is missed between the two.
func (v *Value[T]) Changed() <-chan struct{} {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.changed == nil {
		v.changed = make(chan struct{})
	}
	return v.changed
}
