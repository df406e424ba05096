package webhook

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
	readTimeout = 10 * time.Second // for a request, which contains one object
	stopTimeout = 5 * time.Second  // for requests in flight at shutdown
)

// A Server serves a Handler over TLS. All fields are required.
type Server struct {
	Address     string // host:port; port 0 means any
	Handler     http.Handler
	Certificate func() (*tls.Certificate, error) // called for each handshake, so that certificates can be renewed
	ValidSecret func(secret string) bool         // reports whether this path prefix is the API server's secret
	Ready       <-chan struct{}                  // closed when a certificate is available
	Log         logr.Logger
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: all replicas serve.
func (s *Server) NeedLeaderElection() bool { return false }

// requireSecret serves only requests whose path begins with the secret. API servers do not
// authenticate to webhooks, and an impostor could have objects deleted.
func (s *Server) requireSecret() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		secret, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
		if !s.ValidSecret(secret) {
			http.NotFound(w, r)
			return
		}
		http.StripPrefix("/"+secret, s.Handler).ServeHTTP(w, r)
	})
}

// Start waits for a certificate and serves until ctx ends.
func (s *Server) Start(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.Ready:
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", s.Address)
	if err != nil {
		return fmt.Errorf("listen for webhook requests: %w", err)
	}
	server := &http.Server{
		Handler: s.requireSecret(), ReadTimeout: readTimeout, ReadHeaderTimeout: readTimeout,
		TLSConfig: &tls.Config{
			MinVersion:     tls.VersionTLS12,
			GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.Certificate() },
		},
	}
	s.Log.Info("Serving webhook", "address", listener.Addr().String())
	ended := context.AfterFunc(ctx, func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
		defer cancel()
		if server.Shutdown(stopping) != nil {
			_ = server.Close() // requests still in flight
		}
	})
	defer ended()
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve webhook: %w", err)
	}
	return nil
}
