package retainer

import "github.com/gleaner-dev/gleaner/operator/references"

// Sees reports whether the watches have shown something that refers to an object.
func (r *Retainer) Sees(kind references.Kind, namespace, name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.uses != nil && r.uses.index.User(kind, namespace, name) != ""
}
