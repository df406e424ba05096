package source_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// slow is a server that answers nobody before it is let go, and counts who waits.
type slow struct {
	*site
	now, most atomic.Int64
	answer    chan struct{}
}

func newSlow(t *testing.T) *slow {
	t.Helper()
	s := &slow{answer: make(chan struct{})}
	s.site = serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		now := s.now.Add(1)
		defer s.now.Add(-1)
		for most := s.most.Load(); now > most && !s.most.CompareAndSwap(most, now); most = s.most.Load() {
		}
		select {
		case <-s.answer:
			_, _ = w.Write(module("x"))
		case <-r.Context().Done():
		}
	}))
	return s
}

// asks has the fetcher ask the server for a module of a namespace, in the background.
func (s *slow) asks(ctx context.Context, all *sync.WaitGroup, f *source.Fetcher, namespace string, n int) {
	for i := range n {
		all.Go(func() {
			from := wasmURL(fmt.Sprintf("%s/%s/%d", s.URL, namespace, i))
			from.Namespace = namespace
			_, _ = f.Fetch(ctx, from) // it ends with the test
		})
	}
}

func (s *slow) waits(t *testing.T, n int64) {
	t.Helper()
	devtest.Eventually(t, time.Minute, func() error {
		if now := s.now.Load(); now != n {
			return fmt.Errorf("%d are being asked for, want %d", now, n)
		}
		return nil
	})
}

func TestSlots_ServerDelaysNoOther(t *testing.T) {
	s, fast := newSlow(t), serve(t, gives(module("x")))
	f := fetcher(t, "", source.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range 10 {
		s.asks(ctx, &all, f, fmt.Sprint("tenant-", i), 5)
	}
	s.asks(ctx, &all, f, "", 5)
	s.waits(t, 4) // two for the cluster, two for namespaces
	for _, namespace := range []string{"", "other", "tenant-1"} {
		from := wasmURL(fast.URL + "/" + namespace)
		from.Namespace = namespace
		only(t, fetch(t, f, from), module("x"))
	}
	cancel()
	all.Wait()
	if most := s.most.Load(); most > 4 {
		t.Errorf("the slow server was asked for %d at the same time", most)
	}
}

func TestSlots_NamespaceDelaysNoOther(t *testing.T) {
	fast := serve(t, gives(module("x")))
	f := fetcher(t, "", source.Limits{})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	var servers []*slow
	for range 10 {
		s := newSlow(t)
		servers = append(servers, s)
		s.asks(ctx, &all, f, "tenant", 1)
	}
	asked := func() (n int64) {
		for _, s := range servers {
			n += s.now.Load()
		}
		return n
	}
	devtest.Eventually(t, time.Minute, func() error {
		if n := asked(); n != 2 {
			return fmt.Errorf("%d are being asked for, want 2", n)
		}
		return nil
	})
	for _, namespace := range []string{"", "other"} {
		from := wasmURL(fast.URL)
		from.Namespace = namespace
		only(t, fetch(t, f, from), module("x"))
	}
	cancel()
	all.Wait()
}

func TestSlots_TimeoutIsTemporary(t *testing.T) {
	s := newSlow(t)
	f := fetcher(t, "", source.Limits{NamespaceFetches: 1})
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	s.asks(ctx, &all, f, "tenant", 1)
	s.waits(t, 1)
	waiting, stop := context.WithCancel(t.Context())
	result := make(chan error, 1)
	go func() {
		from := wasmURL(s.URL + "/other")
		from.Namespace = "other"
		_, err := f.Fetch(waiting, from)
		result <- err
	}()
	waitUntil(t, f, 2)
	stop()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("who left is told %v", err)
	}
	cancel()
	all.Wait()
	short := fetcher(t, "", source.Limits{NamespaceFetches: 1, NamespaceTimeout: 100 * time.Millisecond})
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	errs := make(chan error, 2)
	for i := range 2 {
		go func() {
			from := wasmURL(fmt.Sprintf("%s/%d", s.URL, i))
			from.Namespace = "tenant"
			_, err := short.Fetch(ctx, from)
			errs <- err
		}()
	}
	for range 2 { // one has its turn and gets no answer; the other may have one of its own afterwards
		var e *source.Error
		if err := <-errs; !errors.As(err, &e) || !e.Temporary || !strings.Contains(e.Message, "timeout") {
			t.Errorf("got %v", err)
		}
	}
}

func TestAModuleOfANamespaceIsSmaller(t *testing.T) {
	server := serve(t, gives(make([]byte, 5000)))
	f := fetcher(t, "", source.Limits{NamespaceDownload: 4000})
	s := wasmURL(server.URL)
	refused(t, f, s, source.InvalidArtifact)
	s.Namespace = "tenant"
	refused(t, f, s, source.TooLarge, "limit of 4000 bytes")
}
