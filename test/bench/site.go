package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"sync/atomic"
)

// fakeServer is the server for requests of finalizers. It responds immediately: only the
// round trip is measured.
type fakeServer struct {
	url      string
	requests atomic.Int64
	server   http.Server
	ended    chan struct{}
}

func newFakeServer() (*fakeServer, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("serve a site: %w", err)
	}
	s := &fakeServer{url: "http://" + listener.Addr().String(), ended: make(chan struct{})}
	s.server.Handler = http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			s.requests.Add(1)
		}
	})
	go func() {
		defer close(s.ended)
		if err := s.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			fmt.Fprintln(os.Stderr, "bench: serve a site:", err)
		}
	}()
	return s, nil
}

func (s *fakeServer) close() {
	s.server.Close()
	<-s.ended
}
