package gleanertest

import (
	"encoding/json"
	"sort"
	"strconv"

	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
)

// FakeCluster is a set of objects for [Finalize] that intents read and change: its Answer
// returns their results. The zero World is empty. It does not support selectors,
// RBAC or defaults, and its operations take no time.
type FakeCluster struct {
	objects map[gleaner.Target]gleaner.Object
}

// Add adds an object, or replaces the one with its name.
func (w *FakeCluster) Add(o gleaner.Object) {
	if w.objects == nil {
		w.objects = map[gleaner.Target]gleaner.Object{}
	}
	w.objects[targetOf(o)] = o
}

func targetOf(o gleaner.Object) gleaner.Target {
	return gleaner.Target{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}
}

// Objects returns the objects, sorted by kind, namespace and name.
func (w *FakeCluster) Objects() []gleaner.Object {
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

// Execute carries out an intent. It does not support patches and HTTP: their results
// are Unavailable, unless the test wraps it.
func (w *FakeCluster) Execute(intent gleaner.Intent) gleaner.Result {
	switch {
	case intent.Get != nil:
		o, found := w.objects[intent.Get.Target]
		if !found {
			return ErrorResult(gleaner.ErrorNotFound, "not found: "+intent.Get.Kind+" "+intent.Get.Name)
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
	return ErrorResult(gleaner.ErrorUnavailable, "patches and HTTP are not supported")
}

// list returns a page. Its token is the last name, so that the next page is right
// even if objects of this page are deleted meanwhile.
func (w *FakeCluster) list(in gleaner.ListIntent) gleaner.Result {
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

func (w *FakeCluster) create(in gleaner.CreateIntent) gleaner.Result {
	var o gleaner.Object
	if err := json.Unmarshal(in.Object, &o); err != nil {
		return ErrorResult(gleaner.ErrorInvalid, err.Error())
	}
	if _, taken := w.objects[targetOf(o)]; taken {
		return ErrorResult(gleaner.ErrorAlreadyExists, o.Kind+" "+o.Metadata.Name+" already exists")
	}
	w.Add(o)
	return gleaner.Result{Object: &o}
}

func (w *FakeCluster) delete(in gleaner.DeleteIntent) gleaner.Result {
	o, found := w.objects[in.Target]
	switch {
	case !found:
		return ErrorResult(gleaner.ErrorNotFound, "not found: "+in.Kind+" "+in.Name)
	case o.Metadata.UID != in.UID, in.ResourceVersion != "" && o.Metadata.ResourceVersion != in.ResourceVersion:
		return ErrorResult(gleaner.ErrorConflict, "it has uid "+o.Metadata.UID+" and resourceVersion "+strconv.Quote(o.Metadata.ResourceVersion))
	}
	delete(w.objects, in.Target)
	return gleaner.Result{}
}
