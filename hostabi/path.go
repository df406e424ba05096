package hostabi

import (
	"strconv"
	"strings"
)

// path is where a value stands in a document. The root is nil. It is written
// out only for an error, so that a good document costs no strings.
type path struct {
	parent *path
	name   string // of a field
	isItem bool   // then the index counts
	index  int
}

func (p *path) field(name string) *path { return &path{parent: p, name: name} }
func (p *path) item(index int) *path    { return &path{parent: p, isItem: true, index: index} }

// String is as people write it: intents[0].create.object.metadata["a.b"].
func (p *path) String() string {
	if p == nil {
		return ""
	}
	before := p.parent.String()
	switch {
	case p.isItem:
		return before + "[" + strconv.Itoa(p.index) + "]"
	case p.name == "", strings.Trim(p.name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") != "":
		return before + "[" + quote(p.name) + "]"
	case before == "":
		return p.name
	default:
		return before + "." + p.name
	}
}

// quote puts what a module wrote into a message, without letting it fill that.
func quote(s string) string {
	const enough = 64
	if len(s) > enough {
		s = strings.ToValidUTF8(s[:enough], "") + "…"
	}
	return strconv.Quote(s)
}
