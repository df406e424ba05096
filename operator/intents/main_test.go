package intents_test

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/intents"
)

// TestMain sets a proxy before net/http reads the environment, which it does once. Nothing
// listens there.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY"} {
		if err := os.Setenv(name, "http://127.0.0.1:9"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func TestHTTP_UsesNoProxy(t *testing.T) {
	e := intents.New(intents.Options{Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	}}})
	for _, url := range []string{"https://example.invalid/a", "http://example.invalid/a"} {
		intent := get(url)
		// Only a proxy would be called without resolving the name.
		wantError(t, e.Do(t.Context(), grantURLs(url), hostabi.Intent{ID: "a", HTTP: &intent}), hostabi.ErrorUnavailable, "was not found, or has no address")
	}
}
