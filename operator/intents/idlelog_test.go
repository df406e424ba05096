package intents_test

import (
	"bytes"
	"errors"
	"io"
	stdlog "log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/intents"
)

// buffer is a bytes.Buffer for concurrent use.
type buffer struct {
	mu   sync.Mutex // covers text
	text bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// A server that sends more than its response would have net/http log it.
func TestStandardLogger_OmitsWhatServersSendOnIdleConnections(t *testing.T) {
	var logged buffer
	before := stdlog.Writer()
	stdlog.SetOutput(intents.WithoutServerData(&logged))
	t.Cleanup(func() { stdlog.SetOutput(before) })

	idle := make(chan struct{})
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
		<-idle
		_, _ = io.WriteString(conn, r.Header.Get("Authorization"))
		_, _ = conn.Read(make([]byte, 1)) // until the client closes it
	}))
	defer server.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "hunter2")
	response, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	close(idle)
	devtest.Eventually(t, time.Minute, func() error {
		if !strings.Contains(logged.String(), "content is not logged") {
			return errors.New("nothing is logged")
		}
		return nil
	})
	if strings.Contains(logged.String(), "hunter2") {
		t.Errorf("the log contains what the server has sent: %s", logged.String())
	}
}

func TestStandardLogger_KeepsOtherMessages(t *testing.T) {
	var logged buffer
	logger := stdlog.New(intents.WithoutServerData(&logged), "", 0)
	logger.Printf("http: TLS handshake error from %s: EOF", net.IPv4(192, 0, 2, 1))
	if want := "http: TLS handshake error from 192.0.2.1: EOF\n"; logged.String() != want {
		t.Errorf("got %q, want %q", logged.String(), want)
	}
}
