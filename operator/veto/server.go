package veto

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/go-logr/logr"
)

const (
	readTimeout = 10 * time.Second // of a request, which is one object
	stopTimeout = 5 * time.Second  // for what is being answered at the end
)

// Server serves a Handler by TLS. All fields are required.
type Server struct {
	Address     string // host:port; port 0 is any
	Handler     http.Handler
	Certificate func() (*tls.Certificate, error) // asked at each handshake, so that it can be renewed
	Knows       func(secret string) bool         // whether the API server begins its paths with that
	Ready       <-chan struct{}                  // closed once there is a certificate
	Log         logr.Logger
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: any replica answers.
func (s *Server) NeedLeaderElection() bool { return false }

// guarded answers only who knows what paths begin with. An API server does not prove
// that it is one, and who is believed to be one could have objects deleted.
func (s *Server) guarded() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secret, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if !s.Knows(secret) {
			http.NotFound(w, r)
			return
		}
		http.StripPrefix("/"+secret, s.Handler).ServeHTTP(w, r)
	})
}

// Start serves until ctx ends, from when there is a certificate.
func (s *Server) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.Ready:
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Address)
	if err != nil {
		return fmt.Errorf("listen for the webhook: %w", err)
	}
	server := &http.Server{
		Handler: s.guarded(), ReadTimeout: readTimeout, ReadHeaderTimeout: readTimeout,
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.Certificate() },
		},
	}
	s.Log.Info("Serving the webhook", "address", listener.Addr().String())
	ended := context.AfterFunc(ctx, func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if server.Shutdown(stopping) != nil {
			_ = server.Close() // somebody has not heard the answer
		}
	})
	defer ended()
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the webhook: %w", err)
	}
	return nil
}
