package bulkread

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/catalog"
)

var widgets = catalog.Resource{
	Version: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, Kind: "Widget", Namespaced: true, Local: true,
}

// world is a cluster whose objects have resourceVersion 1 and are listed by name.
type world struct {
	*testing.T
	reader  *Reader
	now     time.Time
	objects int
	size    int // of each object, in bytes
	err     error
	lists   []string // namespace and token
	later   []func() // lists that were started
	hold    bool     // lists don't end yet
}

func newWorld(t *testing.T, objects int) *world {
	w := &world{T: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), objects: objects, size: 100}
	w.reader = New(w, func() time.Time { return w.now })
	w.reader.start = func(f func()) { w.later = append(w.later, f) }
	return w
}

func nameOf(i int) string { return fmt.Sprintf("o-%05d", i) }

func (w *world) List(_ context.Context, _ schema.GroupVersionResource, namespace, token string, limit, maxBytes int) (Page, error) {
	w.lists = append(w.lists, namespace+" "+token)
	if w.err != nil {
		return Page{}, w.err
	}
	var first int
	if token != "" {
		if _, err := fmt.Sscan(token, &first); err != nil {
			w.Fatal(err)
		}
	}
	var items []Item
	data := strings.Repeat("x", w.size)
	for i := first; i < min(first+limit, w.objects); i++ {
		json := fmt.Sprintf(`{"metadata": {"name": %q, "generation": 7}, "data": {"a": "%s"}}`, nameOf(i), data)
		items = append(items, Item{Name: nameOf(i), UID: types.UID(nameOf(i)), ResourceVersion: "1", JSON: []byte(json)})
	}
	if w.size*len(items) > maxBytes {
		return Page{}, ErrTooLarge
	}
	if first+limit < w.objects {
		return Page{Items: items, Continue: fmt.Sprint(first + limit)}, nil
	}
	return Page{Items: items}, nil
}

// get asks for an object, and reports whether it was listed. Then the lists that were started end.
func (w *world) get(namespace string, i int, change ...func(*Wanted)) bool {
	wanted := Wanted{Resource: widgets, Namespace: namespace, Name: nameOf(i), UID: types.UID(nameOf(i)), ResourceVersion: "1"}
	for _, c := range change {
		c(&wanted)
	}
	_, ok := w.reader.Get(wanted)
	if !w.hold {
		w.endLists()
	}
	return ok
}

func (w *world) endLists() {
	for len(w.later) != 0 {
		next := w.later[0]
		w.later = w.later[1:]
		next()
	}
}

func TestGet_OfManyObjects_ListsThem(t *testing.T) {
	w := newWorld(t, 2000)
	live := 0
	for i := range w.objects {
		if !w.get("shop", i) {
			live++
		}
		w.now = w.now.Add(time.Millisecond)
	}
	if live != minMisses {
		t.Errorf("%d of %d objects have to be read one by one, want %d", live, w.objects, minMisses)
	}
	if want := []string{"shop ", "shop 500", "shop 1000", "shop 1500"}; !slices.Equal(w.lists, want) {
		t.Errorf("got lists %q, want %q", w.lists, want)
	}
}

// Names are seldom in the order in which objects are decided about, as lists are.
func TestGet_OfManyObjectsInAnyOrder_ListsThem(t *testing.T) {
	w := newWorld(t, 10_000)
	order, live := rand.New(rand.NewPCG(1, 2)).Perm(w.objects), 0
	for _, i := range order {
		if !w.get("shop", i) {
			live++
		}
		w.now = w.now.Add(time.Millisecond)
	}
	if most := w.objects / 20; live > most {
		t.Errorf("%d of %d objects have to be read one by one, want at most %d", live, w.objects, most)
	}
	if most := w.objects/pageSize + 1; len(w.lists) > most {
		t.Errorf("got %d lists, want at most %d", len(w.lists), most)
	}
}

func TestListedObjects_AreKeptWhileTheyAreUsed_ButNotForLong(t *testing.T) {
	w := newWorld(t, 400)
	for i := range minMisses {
		w.get("shop", i)
	}
	began := w.now
	for i := minMisses; ; i++ {
		w.now = w.now.Add(ttl - time.Second)
		if w.get("shop", i) {
			continue
		}
		if age := w.now.Sub(began); age < maxAge || age > maxAge+ttl {
			t.Errorf("they were kept for %s, want about %s", age, maxAge)
		}
		return
	}
}

func TestGet_OfFewObjects_ListsNothing(t *testing.T) {
	w := newWorld(t, 2000)
	for i := range 1000 {
		w.get("shop", i)
		w.now = w.now.Add(window / (minMisses - 2))
	}
	for i := range 100 * (minMisses - 1) {
		w.get(fmt.Sprint("namespace-", i%100), i) // a few in each
	}
	if len(w.lists) != 0 {
		t.Errorf("got lists %q, want none", w.lists)
	}
}

// What is written has the resourceVersion as a precondition, so another state is of no use.
func TestGet_OnlyInExactlyTheWantedState(t *testing.T) {
	for name, change := range map[string]func(*Wanted){
		"another version":           func(o *Wanted) { o.ResourceVersion = "2" },
		"another UID":               func(o *Wanted) { o.UID = "new" },
		"no version":                func(o *Wanted) { o.ResourceVersion = "" },
		"another namespace":         func(o *Wanted) { o.Namespace = "bank" },
		"another version's objects": func(o *Wanted) { o.Resource.Version.Version = "v2" },
		"an aggregated API server":  func(o *Wanted) { o.Resource.Local = false },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 100)
			for i := range minMisses {
				w.get("shop", i)
			}
			if w.get("shop", 50, change) {
				t.Error("it was returned")
			}
			if !w.get("shop", 51) {
				t.Error("the object itself was not listed")
			}
		})
	}
}

func TestGet_ReturnsEachListedObjectOnce(t *testing.T) {
	w := newWorld(t, 100)
	for i := range minMisses {
		w.get("shop", i)
	}
	if !w.get("shop", 50) || w.get("shop", 50) {
		t.Error("want it once: what was written since is not in the list")
	}
	wanted := Wanted{Resource: widgets, Namespace: "shop", Name: nameOf(51), UID: types.UID(nameOf(51)), ResourceVersion: "1"}
	o, ok := w.reader.Get(wanted)
	if !ok || o.GetAPIVersion() != "example.com/v1" || o.GetKind() != "Widget" || o.GetName() != nameOf(51) || o.GetGeneration() != 7 {
		t.Errorf("got %+v", o)
	}
}

func TestGet_AfterTTL_IsNotAnswered(t *testing.T) {
	w := newWorld(t, 100)
	for i := range minMisses {
		w.get("shop", i)
	}
	w.now = w.now.Add(ttl)
	if w.get("shop", 50) {
		t.Error("an old list is still used")
	}
	if w.reader.bytes != 0 {
		t.Errorf("%d bytes are kept", w.reader.bytes)
	}
}

// Objects of a namespace that has very many others are better read one by one.
func TestGet_OfObjectsThatListsDoNotHave_Pauses(t *testing.T) {
	w := newWorld(t, 100_000)
	for i := range 3600 * 100 { // an hour, at 100 objects a second
		w.get("shop", w.objects-1-i%1000)
		w.now = w.now.Add(10 * time.Millisecond)
	}
	if n := len(w.lists); n < 3 || n > 25 {
		t.Errorf("got %d lists in an hour", n)
	}
}

func TestGet_WhileAListIsInProgress_StartsNoOther(t *testing.T) {
	w := newWorld(t, 2000)
	w.hold = true
	for i := range 1000 {
		w.get("shop", i)
		w.get("bank", i)
	}
	if len(w.later) != 1 {
		t.Errorf("%d lists are in progress, want one", len(w.later))
	}
	w.hold = false
	w.endLists()
	if !w.get("shop", 499) && !w.get("bank", 499) {
		t.Error("the list had no effect")
	}
}

func TestLists_AreBoundedInSize(t *testing.T) {
	w := newWorld(t, 100_000)
	w.size = maxPageBytes/pageSize - 200
	for i := range 100 {
		for namespace := range 40 {
			w.get(fmt.Sprint("namespace-", namespace), 10_000+i) // which no first page has
			if w.reader.bytes > maxBytes {
				t.Fatalf("%d bytes are kept, want at most %d", w.reader.bytes, maxBytes)
			}
		}
	}
	if len(w.lists) == 0 {
		t.Error("nothing was listed")
	}

	w = newWorld(t, 2000)
	w.size = 1 << 20
	for i := range 2000 {
		w.get("shop", i)
		w.now = w.now.Add(time.Millisecond)
	}
	if len(w.lists) != 1 {
		t.Errorf("got %d lists of objects that are too large, want one", len(w.lists))
	}
}

func TestGet_AfterAFailedList_IsNotRetriedSoon(t *testing.T) {
	w := newWorld(t, 2000)
	w.err = errors.New("no answer")
	for i := range 2000 {
		if w.get("shop", i) {
			t.Fatal("an object was returned")
		}
		w.now = w.now.Add(time.Millisecond)
	}
	if len(w.lists) != 1 {
		t.Errorf("got %d lists within two seconds, want one", len(w.lists))
	}
	w.err = nil
	w.now = w.now.Add(minPause)
	for i := range minMisses {
		w.get("shop", i)
	}
	if !w.get("shop", 50) {
		t.Error("it is not listed after the pause")
	}
}

// Places come from the names of namespaces, of which there may be any number.
func TestPlaces_AreBounded(t *testing.T) {
	w := newWorld(t, 100)
	for i := range 3 * maxPlaces {
		w.get(fmt.Sprint("namespace-", i), 1)
	}
	if n := len(w.reader.places); n > maxPlaces {
		t.Errorf("got %d places, want at most %d", n, maxPlaces)
	}
}

func TestParse_ReadsAList(t *testing.T) {
	page, err := parse([]byte(`{"kind": "WidgetList", "metadata": {"continue": "more", "resourceVersion": "9"}, "items": [
	  {"metadata": {"name": "a", "uid": "u", "resourceVersion": "5"}, "spec": {"n": 1}}]}`))
	items := page.Items
	if err != nil || page.Continue != "more" || page.ResourceVersion != "9" || len(items) != 1 || items[0].Name != "a" || items[0].UID != "u" || items[0].ResourceVersion != "5" ||
		!strings.Contains(string(items[0].JSON), `"spec": {"n": 1}`) {
		t.Errorf("got %+v, %q, %v", items, page.Continue, err)
	}
	for _, wrong := range []string{"", "[]", `{"items": {}}`, `{"items": [{"metadata": {"name": 1}}]}`} {
		if page, err := parse([]byte(wrong)); err == nil {
			t.Errorf("%s: got %+v, want an error", wrong, page)
		}
	}
}
