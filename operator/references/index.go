package references

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Index has the references of many objects. The zero Index has none. It must not be used concurrently.
//
// Its memory is that of the referred objects, each once with one of the objects that refer to it.
type Index struct {
	by map[Reference]string // an object that refers to it
}

// Add adds the references of an object. An error means that the object could not be read: until it is, nothing is unused.
func (x *Index) Add(o *unstructured.Unstructured) error {
	refs, err := Of(o)
	if err != nil {
		return err
	}
	if x.by == nil {
		x.by = map[Reference]string{}
	}
	for _, r := range refs {
		if _, known := x.by[r]; !known {
			x.by[r] = fmt.Sprintf("%s %s", o.GetKind(), name(o))
		}
	}
	return nil
}

// User returns an object that refers to one, as "Kind namespace/name"; "" if none of those that were added does.
func (x *Index) User(kind Kind, namespace, name string) string {
	if by, ok := x.by[Reference{Kind: kind, Namespace: namespace, Name: name}]; ok {
		return by
	}
	at := strings.LastIndexByte(name, '-')
	if at < 0 || !isNumber(name[at+1:]) {
		return ""
	}
	return x.by[Reference{Kind: kind, Namespace: namespace, Name: name[:at], AnyOrdinal: true}]
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
