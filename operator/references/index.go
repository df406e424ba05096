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

// Put adds the references of an object, or replaces them. One that can't be read is remembered as such: see Err.
func (x *Index) Put(o *unstructured.Unstructured) {
	uid := o.GetUID()
	x.Forget(uid)
	refs, err := Of(o)
	if err != nil {
		if x.unread == nil {
			x.unread = map[types.UID]error{}
		}
		x.unread[uid] = err
		return
	}
	if len(refs) == 0 {
		return
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
}

// Forget forgets an object, such as one that was deleted.
func (x *Index) Forget(uid types.UID) {
	delete(x.unread, uid)
	u, known := x.objects[uid]
	if !known {
		return
	}
	delete(x.objects, uid)
	for _, r := range u.refs {
		if left := slices.DeleteFunc(x.by[r], func(other *user) bool { return other == u }); len(left) == 0 {
			delete(x.by, r)
		} else {
			x.by[r] = left
		}
	}
}

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
	if by := x.by[Reference{Kind: kind, Namespace: namespace, Name: name}]; len(by) != 0 {
		return by[0].name
	}
	at := strings.LastIndexByte(name, '-')
	if at < 0 || !isNumber(name[at+1:]) {
		return ""
	}
	if by := x.by[Reference{Kind: kind, Namespace: namespace, Name: name[:at], AnyOrdinal: true}]; len(by) != 0 {
		return by[0].name
	}
	return ""
}

func isNumber(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
