package login_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gleaner-dev/gleaner/internal/ui/login"
)

// fixture is a Handler that accepts names of users as tokens.
type fixture struct {
	*login.Handler
	mu     sync.Mutex
	closed []string
}

func newFixture() *fixture {
	h := &fixture{}
	h.Handler = login.New("test", func(_ context.Context, token string) (login.Session, error) {
		if strings.HasPrefix(token, "bad") {
			return login.Session{}, errors.New("the API server does not know the token")
		}
		return login.Session{
			User:  token,
			Pages: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "pages of ", token) }),
			Close: func() { h.mu.Lock(); defer h.mu.Unlock(); h.closed = append(h.closed, token) },
		}, nil
	}, http.NotFoundHandler(), time.Now)
	return h
}

func (h *fixture) send(method, target string, form url.Values, cookies ...*http.Cookie) *http.Response {
	r := httptest.NewRequest(method, target, strings.NewReader(form.Encode()))
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	for _, c := range cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func (h *fixture) logIn(t *testing.T, token string) *http.Cookie {
	t.Helper()
	got := h.send("POST", "/login", url.Values{"token": {token}, "next": {"/graph?q=a"}})
	if got.StatusCode != http.StatusSeeOther || got.Header.Get("Location") != "/graph?q=a" || len(got.Cookies()) != 1 {
		t.Fatalf("%s: %d %v", token, got.StatusCode, got.Header)
	}
	return got.Cookies()[0]
}

func (h *fixture) expect(t *testing.T, c *http.Cookie, want int) {
	t.Helper()
	if got := h.send("GET", "/graph", nil, c); got.StatusCode != want {
		t.Errorf("status %d, want %d", got.StatusCode, want)
	}
}

func TestLogin_GivesACookieThatScriptsAndOtherSitesDoNotGet(t *testing.T) {
	h := newFixture()
	c := h.logIn(t, "jane")
	if !c.HttpOnly || !c.Secure || c.SameSite != http.SameSiteStrictMode || c.Value == "jane" || !strings.HasPrefix(c.Name, "__Host-") {
		t.Errorf("cookie %+v", c)
	}
	h.expect(t, c, http.StatusOK)
	h.expect(t, &http.Cookie{Name: c.Name, Value: "guess"}, http.StatusUnauthorized)
	if got := h.send("POST", "/login", url.Values{"token": {"bad"}}); got.StatusCode != http.StatusForbidden || len(got.Cookies()) != 0 {
		t.Errorf("with a bad token: %d", got.StatusCode)
	}
	if got := h.send("POST", "/pause", nil); got.StatusCode != http.StatusUnauthorized {
		t.Errorf("a write without a session: %d", got.StatusCode)
	}
	h.send("POST", "/logout", nil, c)
	h.expect(t, c, http.StatusUnauthorized)
	if len(h.closed) != 1 {
		t.Errorf("closed: %v", h.closed)
	}
}

func TestLogin_LeadsToThesePagesOnly(t *testing.T) {
	h := newFixture()
	for next, want := range map[string]string{"//attacker.example": "/", "https://attacker.example": "/", `/\attacker.example`: "/", "/stuck": "/stuck", "": "/", "/login": "/"} {
		got := h.send("POST", "/login", url.Values{"token": {"jane"}, "next": {next}})
		if at := got.Header.Get("Location"); at != want {
			t.Errorf("%q leads to %q", next, at)
		}
	}
}

func TestSessions_EndByThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		ctx, cancel := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { h.Run(ctx) })
		idle, busy := h.logIn(t, "idle"), h.logIn(t, "busy")
		for range 20 {
			time.Sleep(20 * time.Minute)
			h.expect(t, busy, http.StatusOK)
		}
		h.expect(t, idle, http.StatusUnauthorized)
		for range 5 {
			time.Sleep(20 * time.Minute)
			h.send("GET", "/", nil, busy)
		}
		h.expect(t, busy, http.StatusUnauthorized) // after eight hours
		h.logIn(t, "last")
		cancel()
		running.Wait()
		if got := fmt.Sprint(h.closed); got != "[idle busy last]" {
			t.Errorf("closed: %s", got)
		}
	})
}

// An event stream lasts as long as its page is open, and must not outlast the session.
func TestSessions_EndTheirRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := login.New("test", func(context.Context, string) (login.Session, error) {
			return login.Session{User: "jane", Close: func() {}, Pages: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })}, nil
		}, http.NotFoundHandler(), time.Now)
		f := &fixture{Handler: h}
		c := f.logIn(t, "token")
		var stream sync.WaitGroup
		stream.Go(func() { f.send("GET", "/live/now", nil, c) })
		synctest.Wait()
		f.send("POST", "/logout", nil, c)
		stream.Wait() // otherwise, the test is deadlocked
	})
}

func TestSessions_AreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		var first *http.Cookie
		for n := range 100 {
			time.Sleep(time.Second)
			c := h.logIn(t, fmt.Sprint("user", n))
			if n == 0 {
				first = c
			}
		}
		time.Sleep(time.Minute)
		if got := h.send("POST", "/login", url.Values{"token": {"late"}}); got.StatusCode != http.StatusServiceUnavailable {
			t.Errorf("the 101st user: %d", got.StatusCode)
		}
		h.expect(t, first, http.StatusOK)
	})
}

func TestSessions_OneUserHasThree_AndTheOldestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		other := h.logIn(t, "other")
		var all []*http.Cookie
		for range 4 {
			time.Sleep(time.Second)
			all = append(all, h.logIn(t, "jane"))
		}
		h.expect(t, all[0], http.StatusUnauthorized)
		for _, c := range append(all[1:], other) {
			h.expect(t, c, http.StatusOK)
		}
	})
}

func TestLogin_AttemptsAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFixture()
		codes := map[int]int{}
		for range 30 {
			codes[h.send("POST", "/login", url.Values{"token": {"bad"}}).StatusCode]++
		}
		if codes[http.StatusForbidden] != 10 || codes[http.StatusTooManyRequests] != 20 {
			t.Errorf("%v", codes)
		}
		time.Sleep(5 * time.Second)
		h.logIn(t, "jane")
	})
}
