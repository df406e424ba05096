package references

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// maxUnread is the number of objects that could not be read that the error of an Index names.
const maxUnread = 3

// Index has the references of many objects, as they change. The zero Index has none. It must not be used concurrently.
type Index struct {
	objects map[types.UID]*user
	by      map[Reference][]*user
	unread  map[types.UID]error
}

// user is an object with references.
type user struct {
	name string // for people
	refs []Reference
}

// Put adds the references of an object, or replaces them. It returns those that the object had and does not have any more, and whether
// anything has changed. An object that can't be read is remembered as such: see Err. Readers return references besides those that are
// known for its kind.
func (x *Index) Put(o *unstructured.Unstructured, readers ...Reader) (released []Reference, changed bool) {
	uid := o.GetUID()
	_, unread := x.unread[uid]
	before := x.Forget(uid)
	refs, err := read(o, readers)
	if err != nil {
		if x.unread == nil {
			x.unread = map[types.UID]error{}
		}
		x.unread[uid] = err
		return before, !unread
	}
	if len(refs) == 0 {
		return before, unread || len(before) != 0
	}
	if x.objects == nil {
		x.objects, x.by = map[types.UID]*user{}, map[Reference][]*user{}
	}
	slices.SortFunc(refs, func(a, b Reference) int { return cmp.Compare(a.String(), b.String()) })
	u := &user{name: fmt.Sprintf("%s %s", o.GetKind(), name(o)), refs: slices.Clip(slices.Compact(refs))}
	x.objects[uid] = u
	for _, r := range u.refs {
		x.by[r] = append(x.by[r], u)
	}
	changed = unread || !slices.Equal(before, u.refs)
	return slices.DeleteFunc(before, func(r Reference) bool { return slices.Contains(u.refs, r) }), changed
}

// read returns all references of an object.
func read(o *unstructured.Unstructured, more []Reader) (refs []Reference, err error) {
	if _, known := readers[o.GroupVersionKind().GroupKind()]; known || len(more) == 0 {
		if refs, err = Of(o); err != nil {
			return nil, err
		}
	}
	for _, reader := range more {
		found, err := reader(o)
		if err != nil {
			return nil, fmt.Errorf("references of %s %s: %w", o.GetKind(), name(o), err)
		}
		refs = append(refs, found...)
	}
	return refs, nil
}

// Forget forgets an object, such as one that was deleted, and returns the references that it had. They belong to the caller.
func (x *Index) Forget(uid types.UID) (released []Reference) {
	delete(x.unread, uid)
	u, known := x.objects[uid]
	if !known {
		return nil
	}
	delete(x.objects, uid)
	for _, r := range u.refs {
		if left := slices.DeleteFunc(x.by[r], func(other *user) bool { return other == u }); len(left) == 0 {
			delete(x.by, r)
		} else {
			x.by[r] = left
		}
	}
	return u.refs
}

// IsUnread reports whether an object could not be read.
func (x *Index) IsUnread(uid types.UID) bool { return x.unread[uid] != nil }

// Err returns which objects could not be read; nil if all were. Until then, nothing is unused.
func (x *Index) Err() error {
	if len(x.unread) == 0 {
		return nil
	}
	texts := make([]string, 0, len(x.unread))
	for _, err := range x.unread {
		texts = append(texts, err.Error())
	}
	slices.Sort(texts)
	if more := len(texts) - maxUnread; more > 0 {
		texts = append(texts[:maxUnread], fmt.Sprintf("and of %d more objects", more))
	}
	return errors.New(strings.Join(texts, "; "))
}

// User returns an object that refers to one, as "Kind namespace/name"; "" if none of those that were read does.
func (x *Index) User(kind Kind, namespace, name string) string {
	for _, r := range to(kind, namespace, name) {
		if by := x.by[r]; len(by) != 0 {
			return by[0].name
		}
	}
	return ""
}

// Set is a set of references.
type Set map[Reference]struct{}

// Add adds references.
func (s Set) Add(refs ...Reference) {
	for _, r := range refs {
		s[r] = struct{}{}
	}
}

// Refers reports whether one of the references is to an object.
func (s Set) Refers(kind Kind, namespace, name string) bool {
	return slices.ContainsFunc(to(kind, namespace, name), func(r Reference) bool {
		_, has := s[r]
		return has
	})
}

// to returns the references that an object can have.
func to(kind Kind, namespace, name string) []Reference {
	refs := []Reference{{Kind: kind, Namespace: namespace, Name: name}}
	if at := strings.LastIndexByte(name, '-'); at >= 0 && isNumber(name[at+1:]) {
		refs = append(refs, Reference{Kind: kind, Namespace: namespace, Name: name[:at], AnyOrdinal: true})
	}
	return refs
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
