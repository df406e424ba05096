package intents_test

import (
	"context"
	"net"
	"os"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/intents"
)

// TestMain names a proxy before net/http looks for one, which it does once. Nobody
// listens there.
func TestMain(m *testing.M) {
	for _, name := range []string{"HTTPS_PROXY", "HTTP_PROXY"} {
		if err := os.Setenv(name, "http://127.0.0.1:9"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func TestHTTP_GoesByNoProxy(t *testing.T) {
	e := intents.New(intents.Options{Resolver: &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	}}})
	for _, url := range []string{"https://example.invalid/a", "http://example.invalid/a"} {
		intent := get(url)
		// Only a proxy would have been asked without an address.
		fails(t, e.Do(t.Context(), granting(url), hostabi.Intent{ID: "a", HTTP: &intent}), hostabi.ErrorUnavailable, "is not found, or has no address")
	}
}
