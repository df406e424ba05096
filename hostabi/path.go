package hostabi

import (
	"strconv"
	"strings"
)

// path is the position of a value in a document. The root is nil. It is formatted
// only for errors, so that a valid document allocates no strings for it.
type path struct {
	parent *path
	name   string // of a field, if isItem is false
	isItem bool   // index is set
	index  int
}

func (p *path) field(name string) *path { return &path{parent: p, name: name} }
func (p *path) item(index int) *path    { return &path{parent: p, isItem: true, index: index} }

// String formats the path as in intents[0].create.object.metadata["a.b"].
func (p *path) String() string {
	if p == nil {
		return ""
	}
	prefix := p.parent.String()
	switch {
	case p.isItem:
		return prefix + "[" + strconv.Itoa(p.index) + "]"
	case p.name == "", strings.Trim(p.name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "":
		return prefix + "[" + quote(p.name) + "]"
	case prefix == "":
		return p.name
	default:
		return prefix + "." + p.name
	}
}

// quote quotes text of a module for a message, and shortens it.
func quote(s string) string {
	const maxBytes = 64
	if len(s) > maxBytes {
		s = strings.ToValidUTF8(s[:maxBytes], "") + "…"
	}
	return strconv.Quote(s)
}
