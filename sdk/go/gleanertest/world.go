package gleanertest

import (
	"encoding/json"
	"sort"
	"strconv"

	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
)

// World is a world of objects for [Finalize], which intents read and change: its
// Answer is what comes of them. The zero World is empty. It knows no selectors, RBAC or
// defaults, and nothing in it takes time.
type World struct {
	objects map[gleaner.Target]gleaner.Object
}

// Add puts an object there, in place of one of its name.
func (w *World) Add(o gleaner.Object) {
	if w.objects == nil {
		w.objects = map[gleaner.Target]gleaner.Object{}
	}
	w.objects[targetOf(o)] = o
}

func targetOf(o gleaner.Object) gleaner.Target {
	return gleaner.Target{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}
}

// Objects are those that are there, by kind, namespace and name.
func (w *World) Objects() []gleaner.Object {
	list := make([]gleaner.Object, 0, len(w.objects))
	for _, o := range w.objects {
		list = append(list, o)
	}
	key := func(o gleaner.Object) string {
		return o.APIVersion + "\x00" + o.Kind + "\x00" + o.Metadata.Namespace + "\x00" + o.Metadata.Name
	}
	sort.Slice(list, func(i, j int) bool { return key(list[i]) < key(list[j]) })
	return list
}

// Answer carries an intent out. Patches and HTTP are not for it: those it answers
// Unavailable, and a test has a func of its own around it.
func (w *World) Answer(intent gleaner.Intent) gleaner.Result {
	switch {
	case intent.Get != nil:
		o, found := w.objects[intent.Get.Target]
		if !found {
			return Refuses(gleaner.ErrorNotFound, "there is no "+intent.Get.Kind+" "+intent.Get.Name)
		}
		return gleaner.Result{Object: &o}
	case intent.List != nil:
		return w.list(*intent.List)
	case intent.Create != nil:
		return w.create(*intent.Create)
	case intent.Delete != nil:
		return w.delete(*intent.Delete)
	case intent.Event != nil:
		return gleaner.Result{}
	}
	return Refuses(gleaner.ErrorUnavailable, "this world has objects alone")
}

// list gives a page. Its token is the last name on it, so that the next page is
// the right one even if objects of this page are deleted meanwhile.
func (w *World) list(in gleaner.ListIntent) gleaner.Result {
	limit := in.Limit
	if limit == 0 {
		limit = 500
	}
	page := gleaner.ListResult{Items: []gleaner.Object{}}
	for _, o := range w.Objects() {
		if o.APIVersion != in.APIVersion || o.Kind != in.Kind || in.Namespace != "" && o.Metadata.Namespace != in.Namespace {
			continue
		}
		key := o.Metadata.Namespace + "/" + o.Metadata.Name
		if in.Continue != "" && key <= in.Continue {
			continue
		}
		if len(page.Items) == limit {
			last := page.Items[limit-1].Metadata
			page.Continue = last.Namespace + "/" + last.Name
			break
		}
		page.Items = append(page.Items, o)
	}
	return gleaner.Result{List: &page}
}

func (w *World) create(in gleaner.CreateIntent) gleaner.Result {
	var o gleaner.Object
	if err := json.Unmarshal(in.Object, &o); err != nil {
		return Refuses(gleaner.ErrorInvalid, err.Error())
	}
	if _, taken := w.objects[targetOf(o)]; taken {
		return Refuses(gleaner.ErrorAlreadyExists, o.Kind+" "+o.Metadata.Name+" is there")
	}
	w.Add(o)
	return gleaner.Result{Object: &o}
}

func (w *World) delete(in gleaner.DeleteIntent) gleaner.Result {
	o, found := w.objects[in.Target]
	switch {
	case !found:
		return Refuses(gleaner.ErrorNotFound, "there is no "+in.Kind+" "+in.Name)
	case o.Metadata.UID != in.UID, in.ResourceVersion != "" && o.Metadata.ResourceVersion != in.ResourceVersion:
		return Refuses(gleaner.ErrorConflict, "it has uid "+o.Metadata.UID+" and resourceVersion "+strconv.Quote(o.Metadata.ResourceVersion))
	}
	delete(w.objects, in.Target)
	return gleaner.Result{}
}
