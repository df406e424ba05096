package completion

import "github.com/gleaner-dev/gleaner/operator/graph"

// memory remembers the objects that were added to it last. The zero value is empty.
type memory struct {
	roots map[graph.ID]Root
	queue []graph.ID // the oldest first
}

// add adds an object, unless it is there. With more than maximum, the oldest one is forgotten.
func (m *memory) add(id graph.ID, r Root, maximum int) {
	if m.roots == nil {
		m.roots = map[graph.ID]Root{}
	}
	if _, known := m.roots[id]; known {
		return
	}
	if len(m.queue) == maximum {
		delete(m.roots, m.queue[0])
		m.queue = m.queue[1:]
	}
	m.roots[id], m.queue = r, append(m.queue, id)
}
