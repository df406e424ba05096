package intents_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/policies"
)

// connectionsOf counts the connections that a server accepts.
func connectionsOf(t *testing.T) (*httptest.Server, *atomic.Int64) {
	t.Helper()
	var accepted atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			accepted.Add(1)
		}
	}
	s.Start()
	t.Cleanup(s.Close)
	return s, &accepted
}

func sendOK(t *testing.T, e *intents.Executor, identity intents.Identity, url string) {
	t.Helper()
	intent := get(url)
	if r := e.Do(t.Context(), identity, hostabi.Intent{ID: "a", HTTP: &intent}); r.HTTP == nil || r.HTTP.Status != http.StatusOK {
		t.Fatal(describe(r))
	}
}

func TestHTTP_ReusesConnections(t *testing.T) {
	for reuse, want := range map[bool]int64{false: 5, true: 1} {
		s, accepted := connectionsOf(t)
		e := intents.New(intents.Options{ReuseConnections: reuse})
		for range 5 {
			sendOK(t, e, grantURLs(s.URL+"/*"), s.URL+"/")
		}
		if n := accepted.Load(); n != want {
			t.Errorf("ReuseConnections: %t: got %d connections, want %d", reuse, n, want)
		}
	}
}

// What one finalizer has sent may not come back to another, or to one whose grant has changed.
func TestHTTP_SharesConnectionsOnlyWithinOneGrant(t *testing.T) {
	for name, change := range map[string]func(*intents.Identity){
		"another finalizer": func(i *intents.Identity) { i.Name = "Finalizer shop/other" },
		"another account":   func(i *intents.Identity) { i.Account = policies.ServiceAccount{Namespace: "shop", Name: "other"} },
		"another URL":       func(i *intents.Identity) { i.Grants.HTTP[0].URL = i.Grants.HTTP[0].URL[:len(i.Grants.HTTP[0].URL)-1] },
		"other addresses": func(i *intents.Identity) {
			i.Grants.HTTP[0].Addresses = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, accepted := connectionsOf(t)
			e := intents.New(intents.Options{ReuseConnections: true})
			sendOK(t, e, grantURLs(s.URL+"/*"), s.URL+"/")
			other := grantURLs(s.URL + "/*")
			change(&other)
			sendOK(t, e, other, s.URL+"/")
			if n := accepted.Load(); n != 2 {
				t.Errorf("got %d connections, want 2", n)
			}
		})
	}
}

// A name is resolved, and its address checked, again from time to time, however often it is used.
func TestHTTP_ConnectionsHaveAMaximumAge(t *testing.T) {
	s, accepted := connectionsOf(t)
	now := time.Now()
	e := intents.New(intents.Options{ReuseConnections: true, Now: func() time.Time { return now }})
	for range 61 {
		sendOK(t, e, grantURLs(s.URL+"/*"), s.URL+"/")
		now = now.Add(time.Second)
	}
	if n := accepted.Load(); n != 3 {
		t.Errorf("got %d connections in a minute, want 3", n)
	}
}

// One finalizer can't use up the connections that are kept, or their memory.
func TestHTTP_KeepsFewConnectionsOfAFinalizer(t *testing.T) {
	idle := map[net.Conn]bool{}
	states := make(chan func(), 10_000)
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	s.Config.ConnState = func(c net.Conn, state http.ConnState) {
		states <- func() { idle[c] = state == http.StateIdle }
	}
	s.Start()
	defer s.Close()
	e := intents.New(intents.Options{ReuseConnections: true})
	quiet := grantURLs(s.URL + "/*")
	quiet.Name = "Finalizer shop/quiet"
	sendOK(t, e, quiet, s.URL+"/")
	for i := range 100 {
		url := fmt.Sprintf("%s/%d", s.URL, i)
		sendOK(t, e, grantURLs(url), url)
	}
	for len(states) != 0 {
		(<-states)()
	}
	open := 0
	for _, is := range idle {
		if is {
			open++
		}
	}
	if open > 20 { // some are being closed
		t.Errorf("%d connections are kept", open)
	}
}
