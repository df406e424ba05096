// Package bulkread reads whole objects with lists where many are about to be decided about. A GET
// for each costs the API server more than all the rest of a deletion.
//
// It is an offer: an object that no recent list had in exactly the wanted resourceVersion is read
// live by the caller. What it has depends on what callers ask for, and is bounded in size and time.
// A list that few of its objects were wanted from is not repeated soon.
package bulkread

import (
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"

	"github.com/gleaner-dev/gleaner/operator/catalog"
)

const (
	// minMisses is the number of objects of a place that must be asked for within window, before the
	// place is listed.
	minMisses = 20
	window    = time.Second

	// pageSize is the number of objects of a page. While more than maxUnused listed objects of a
	// place are unused, no more pages are listed. That is more where objects are asked for in
	// another order than that of lists, which is by name: perAsked for each one asked for within
	// window, but not more than perUsed for each one that was used.
	pageSize, maxUnused = 500, 750
	perAsked, perUsed   = 20, 100

	// Listed objects are kept until none was used, and no page was listed, for ttl; and for at most
	// maxAge.
	ttl, maxAge = 5 * time.Second, time.Minute

	// A list of which less than half was wanted is followed by a pause.
	minPause, maxPause = 30 * time.Second, 10 * time.Minute

	// maxPageBytes is the maximum size of a page, and maxBytes that of all listed objects.
	maxPageBytes, maxBytes = 4 << 20, 16 << 20

	// maxPlaces is the number of places that are remembered.
	maxPlaces = 1000

	listTimeout = 5 * time.Second
)

// Lister lists a page of whole objects.
type Lister interface {
	// List returns the objects of a resource in a namespace, or all for "", after a continue token. If
	// the page is larger than maxBytes, the error is ErrTooLarge.
	List(ctx context.Context, resource schema.GroupVersionResource, namespace, token string, limit, maxBytes int) (Page, error)
}

// Page is a page of a list.
type Page struct {
	Items           []Item
	Continue        string // the token of the next page; "" after the last one
	ResourceVersion string // of the list
}

// Item is a listed object.
type Item struct {
	Name            string
	UID             types.UID
	ResourceVersion string
	JSON            []byte // apiVersion and kind may be missing
}

// Object returns the whole object, whose kind the caller knows.
func (i Item) Object(kind schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	var object map[string]any
	if err := json.Unmarshal(i.JSON, &object); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", kind.Kind, i.Name, err)
	}
	if object == nil {
		return nil, fmt.Errorf("read %s %s: it is null", kind.Kind, i.Name)
	}
	o := &unstructured.Unstructured{Object: object}
	o.SetGroupVersionKind(kind)
	return o, nil
}

// Wanted is an object in one state.
type Wanted struct {
	Resource        catalog.Resource
	Namespace, Name string
	UID             types.UID
	ResourceVersion string
}

// Reader has objects that were listed. Create it with New. Its methods may be called concurrently.
type Reader struct {
	lister Lister
	now    func() time.Time
	start  func(func()) // runs a function later

	mu     sync.Mutex // covers what follows
	places map[place]*state
	bytes  int  // of all listed objects
	busy   bool // a list is in progress; one at a time is enough
}

type place struct {
	resource  schema.GroupVersionResource
	namespace string
}

// state is what is known about a place.
type state struct {
	misses, asked int       // since the window began; asked includes misses
	rate          int       // asked within the window before it
	since         time.Time // when the window began

	items  map[string]Item
	listed time.Time // when the last page was
	taken  time.Time // when the last object was used
	token  string    // of the next page; "": there is none, or nothing was listed

	expiry        *time.Timer   // nil: nothing was listed yet
	fetched, used int           // objects since the first page
	pause         time.Duration // the last one; zero: the last lists were of use
	until         time.Time     // when the pause ends
}

// New returns a Reader.
func New(lister Lister, now func() time.Time) *Reader {
	return &Reader{lister: lister, now: now, start: func(f func()) { go f() }, places: map[place]*state{}}
}

// Get returns an object if a recent list had it in the wanted state. Each object of a list is
// returned once, and belongs to the caller.
func (r *Reader) Get(w Wanted) (*unstructured.Unstructured, bool) {
	if !w.Resource.Local || w.UID == "" || w.ResourceVersion == "" { // then a resourceVersion may not stand for one state
		return nil, false
	}
	item, ok := r.take(place{w.Resource.Version, w.Namespace}, w.Name)
	if !ok || item.UID != w.UID || item.ResourceVersion != w.ResourceVersion {
		return nil, false
	}
	o, err := item.Object(w.Resource.GroupVersionKind())
	return o, err == nil
}

// take removes a listed object, and starts a list if that is worth it.
func (r *Reader) take(at place, name string) (Item, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := r.now()
	s := r.stateOf(at, now)
	s.ask(now)
	item, ok := s.items[name]
	if ok {
		delete(s.items, name)
		r.bytes -= len(item.JSON)
		s.used++
		s.taken = now
	} else {
		s.misses++
	}
	if !r.busy && r.bytes <= maxBytes-maxPageBytes && s.wantsPage(now) {
		r.busy = true
		token := s.token
		r.start(func() { r.list(at, token) })
	}
	return item, ok
}

// ask counts a request.
func (s *state) ask(now time.Time) {
	if age := now.Sub(s.since); age > window {
		s.rate = s.asked
		if age > 2*window {
			s.rate = 0
		}
		s.misses, s.asked, s.since = 0, 0, now
	}
	s.asked++
}

// expired reports whether what was listed is not kept any longer.
func (s *state) expired(now time.Time) bool {
	listed := now.Sub(s.listed)
	return s.fetched != 0 && (listed >= maxAge || listed >= ttl && now.Sub(s.taken) >= ttl)
}

// wantsPage reports whether the first page, or another one, is worth listing.
func (s *state) wantsPage(now time.Time) bool {
	switch {
	case now.Before(s.until), len(s.items) >= max(maxUnused, min(perAsked*max(s.asked, s.rate), perUsed*s.used)):
		return false
	case s.token != "":
		return true
	default:
		return s.misses >= minMisses
	}
}

// stateOf returns the state of a place, without what has expired.
func (r *Reader) stateOf(at place, now time.Time) *state {
	s, ok := r.places[at]
	if !ok {
		if len(r.places) >= maxPlaces {
			r.forget(now)
		}
		s = &state{items: map[string]Item{}}
		r.places[at] = s
	}
	if s.expired(now) {
		r.end(s, now)
	}
	return s
}

// end ends the lists of a place.
func (r *Reader) end(s *state, now time.Time) {
	if 2*s.used < s.fetched {
		s.pause = min(max(2*s.pause, minPause), maxPause)
		s.until = now.Add(s.pause)
	} else {
		s.pause = 0
	}
	for _, item := range s.items {
		r.bytes -= len(item.JSON)
	}
	clear(s.items)
	s.token, s.fetched, s.used, s.misses = "", 0, 0, 0
}

// forget forgets places, and with them their pauses.
func (r *Reader) forget(now time.Time) {
	for at, s := range r.places {
		if s.fetched == 0 || s.expired(now) {
			r.end(s, now)
			delete(r.places, at)
		}
	}
	if len(r.places) >= maxPlaces {
		clear(r.places)
		r.bytes = 0
	}
}

// list lists a page.
func (r *Reader) list(at place, token string) {
	ctx, cancel := context.WithTimeout(context.Background(), listTimeout)
	defer cancel()
	page, err := r.lister.List(ctx, at.resource, at.namespace, token, pageSize, maxPageBytes)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.busy = false
	now := r.now()
	s := r.stateOf(at, now)
	if err != nil {
		s.fetched = max(s.fetched, 2*s.used+1) // so that there is a pause
		r.end(s, now)
		return
	}
	for _, item := range page.Items {
		if old, ok := s.items[item.Name]; ok {
			r.bytes -= len(old.JSON)
		}
		s.items[item.Name] = item
		r.bytes += len(item.JSON)
	}
	s.fetched += len(page.Items)
	s.listed, s.token, s.misses = now, page.Continue, 0
	if s.expiry == nil {
		s.expiry = time.AfterFunc(ttl, func() { r.expire(at) })
	} else {
		s.expiry.Reset(ttl)
	}
}

// expire ends the lists of a place, at once or later: when nothing was listed or used for a while.
func (r *Reader) expire(at place) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok := r.places[at]
	switch {
	case !ok || s.fetched == 0:
	case s.expired(r.now()):
		r.end(s, r.now())
	default:
		s.expiry.Reset(ttl)
	}
}
