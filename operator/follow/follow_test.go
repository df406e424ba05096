package follow_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/follow"
)

var widgets = catalog.Resource{Version: schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, Kind: "Widget", Namespaced: true}

func widget(name, version string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "example.com/v1", "kind": "Widget"}}
	o.SetName(name)
	o.SetUID(types.UID(name))
	o.SetResourceVersion(version)
	return o
}

// server is an API server with widgets. Each watch gets one of its watchers.
type server struct {
	*testing.T
	names   []string
	size    int // of each widget, as far as List is concerned
	client  *fake.FakeDynamicClient
	watches chan *watch.FakeWatcher
	relist  chan chan struct{}

	mu    sync.Mutex // covers what follows
	lines []string
	fails error // of the next watch
	limit []int // of each page
}

func newServer(t *testing.T, names ...string) *server {
	t.Helper()
	s := &server{T: t, names: names, watches: make(chan *watch.FakeWatcher, 100), relist: make(chan chan struct{}, 100)}
	s.client = fake.NewSimpleDynamicClientWithCustomListKinds(runtime.NewScheme(), map[schema.GroupVersionResource]string{widgets.Version: "WidgetList"})
	s.client.PrependWatchReactor("*", func(a clienttesting.Action) (bool, watch.Interface, error) {
		s.add("watch " + a.(clienttesting.WatchActionImpl).ListOptions.ResourceVersion)
		s.mu.Lock()
		err := s.fails
		s.fails = nil
		s.mu.Unlock()
		if err != nil {
			return true, nil, err
		}
		w := watch.NewFakeWithChanSize(100, false)
		s.watches <- w
		return true, w, nil
	})
	return s
}

// run follows widgets until the test ends.
func (s *server) run() {
	f := follow.Follower{
		Lister: s, Client: s.client, Resource: widgets, Sink: s, MinRetry: time.Millisecond, MaxRetry: 10 * time.Millisecond,
		Relist: func() <-chan struct{} {
			c := make(chan struct{})
			s.relist <- c
			return c
		},
	}
	ctx, cancel := context.WithCancel(s.Context())
	ended := make(chan struct{})
	go func() {
		f.Run(ctx)
		close(ended)
	}()
	s.Cleanup(func() {
		cancel()
		<-ended
	})
}

func (s *server) List(_ context.Context, _ schema.GroupVersionResource, _, token string, limit, maxBytes int) (bulkread.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.limit = append(s.limit, limit)
	first, _ := strconv.Atoi(token)
	page := bulkread.Page{ResourceVersion: "100"}
	for _, name := range s.names[first:min(first+limit, len(s.names))] {
		data, err := json.Marshal(widget(name, "1").Object)
		if err != nil {
			return page, err
		}
		page.Items = append(page.Items, bulkread.Item{Name: name, JSON: data})
	}
	if len(page.Items)*s.size > maxBytes {
		return bulkread.Page{}, fmt.Errorf("list: %w", bulkread.ErrTooLarge)
	}
	if first+limit < len(s.names) {
		page.Continue = strconv.Itoa(first + limit)
	}
	return page, nil
}

func (s *server) add(line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = append(s.lines, line)
}

func (s *server) Listing() { s.add("listing") }
func (s *server) Put(o *unstructured.Unstructured) {
	s.add("put " + o.GetName() + " " + o.GetResourceVersion())
}
func (s *server) Gone(o *unstructured.Unstructured) { s.add("gone " + o.GetName()) }
func (s *server) Listed()                           { s.add("listed") }
func (s *server) Failed(err error)                  { s.add("failed: " + err.Error()) }

// expect waits until the lines are some, and forgets them.
func (s *server) expect(want ...string) {
	s.Helper()
	var got string
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		s.mu.Lock()
		got = strings.Join(s.lines, "; ")
		if got == strings.Join(want, "; ") {
			s.lines = nil
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
	s.Fatalf("got %q\nwant %q", got, strings.Join(want, "; "))
}

func TestFollower_ListsAndThenWatches(t *testing.T) {
	s := newServer(t, "a", "b")
	s.run()
	s.expect("listing", "put a 1", "put b 1", "listed", "watch 100")
	w := <-s.watches
	w.Modify(widget("a", "101"))
	w.Action(watch.Bookmark, widget("", "105"))
	w.Delete(widget("b", "106"))
	w.Add(widget("c", "107"))
	s.expect("put a 101", "gone b", "put c 107")
	w.Stop()
	s.expect("watch 107")
	(<-s.watches).Action(watch.Bookmark, widget("", "120"))
}

func TestFollower_ListsAgain_WhenTheVersionHasExpired(t *testing.T) {
	s := newServer(t, "a")
	s.run()
	s.expect("listing", "put a 1", "listed", "watch 100")
	expired := apierrors.NewResourceExpired("too old")
	(<-s.watches).Error(&expired.ErrStatus)
	s.expect("failed: watch widgets.example.com: too old", "listing", "put a 1", "listed", "watch 100")
	s.mu.Lock()
	s.fails = expired
	s.mu.Unlock()
	(<-s.watches).Stop()
	s.expect("watch 100", "failed: watch widgets.example.com: too old", "listing", "put a 1", "listed", "watch 100")
}

func TestFollower_WatchesAgain_AfterAnotherError(t *testing.T) {
	s := newServer(t, "a")
	s.run()
	s.expect("listing", "put a 1", "listed", "watch 100")
	s.mu.Lock()
	s.fails = errors.New("connection refused")
	s.mu.Unlock()
	(<-s.watches).Stop()
	s.expect("watch 100", "watch 100")
}

func TestFollower_ListsAgain_WhenAsked(t *testing.T) {
	s := newServer(t, "a")
	s.run()
	s.expect("listing", "put a 1", "listed", "watch 100")
	close(<-s.relist)
	s.expect("listing", "put a 1", "listed", "watch 100")
}

// A page is as large as the sizes of objects allow, and a single object has a page in any case.
func TestList_BoundsTheSizeOfPages(t *testing.T) {
	s := newServer(t)
	for i := range 100 {
		s.names = append(s.names, fmt.Sprint("w", i))
	}
	for size, want := range map[int]int{1: 500, 200 << 10: 31, 9 << 20: 1} {
		s.size, s.limit, s.lines = size, nil, nil
		version, err := follow.List(t.Context(), s, widgets, "", s.Put)
		if err != nil || version != "100" || len(s.lines) != 100 {
			t.Errorf("%d bytes: %d objects of version %q: %v", size, len(s.lines), version, err)
		}
		if got := s.limit[len(s.limit)-1]; got != want {
			t.Errorf("%d bytes: the last page has %d objects; want %d", size, got, want)
		}
	}
	s.size = 65 << 20
	if _, err := follow.List(t.Context(), s, widgets, "", s.Put); !errors.Is(err, bulkread.ErrTooLarge) {
		t.Errorf("an object that is too large: %v", err)
	}
}
