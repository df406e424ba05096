package main

import (
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
)

// outOfOrder is how many of the site's answers are one that says that it is.
const outOfOrder = 10

// site is where a finalizer's module sends a request for each object before it goes.
type site struct {
	server *httptest.Server
	asked  atomic.Int64
	gone   sync.Map // by path: what was deleted
}

func newSite() *site {
	s := &site{}
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.asked.Add(1)%outOfOrder == 0 {
			w.WriteHeader(http.StatusInternalServerError)
			return
		}
		s.gone.Store(r.URL.Path, true)
	}))
	return s
}

// forget reports whether the site was asked to delete what an object stands for, once.
func (s *site) forget(name string) bool {
	_, was := s.gone.LoadAndDelete("/" + name)
	return was
}

func (s *site) close() { s.server.Close() }
