package archiver

import (
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// memory remembers something about objects, by UID, for a while. The zero value is ready to use. Its
// methods may be called concurrently.
type memory[T any] struct {
	mu          sync.Mutex // covers what follows
	recent, old map[types.UID]T
}

// put remembers something about an object. When there are twice as many objects as maximum, the older
// half is forgotten.
func (m *memory[T]) put(uid types.UID, value T, maximum int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.recent == nil || len(m.recent) >= maximum {
		m.recent, m.old = map[types.UID]T{}, m.recent
	}
	m.recent[uid] = value
}

func (m *memory[T]) get(uid types.UID) (T, bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if value, ok := m.recent[uid]; ok {
		return value, true
	}
	value, ok := m.old[uid]
	return value, ok
}

func (m *memory[T]) forget(uid types.UID) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.recent, uid)
	delete(m.old, uid)
}
