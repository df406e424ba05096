package main

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
)

// siteFailureRate is the fraction of requests to the site that fail: one in siteFailureRate.
const siteFailureRate = 10

// fakeServer is the server to which a finalizer's module sends a request for each object.
type fakeServer struct {
	server   *httptest.Server
	received atomic.Int64
	deleted  sync.Map // deleted paths
}

func newFakeServer() *fakeServer {
	s := &fakeServer{}
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.received.Add(1)%siteFailureRate == 0 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		s.deleted.Store(r.URL.Path, true)
	}))
	return s
}

// receivedOnce reports, once, whether the site received the request for an object.
func (s *fakeServer) receivedOnce(name string) bool {
	_, was := s.deleted.LoadAndDelete("/" + name)
	return was
}

func (s *fakeServer) close() { s.server.Close() }
