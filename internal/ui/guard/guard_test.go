package guard_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/ui/guard"
)

var hello = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("hello")) })

func send(h http.Handler, method, target string, header http.Header, cookies ...*http.Cookie) *http.Response {
	r := httptest.NewRequest(method, target, nil)
	for name, values := range header {
		r.Header[name] = values
	}
	for _, c := range cookies {
		r.AddCookie(c)
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w.Result()
}

func TestHarden_RefusesOtherHostsAndOrigins(t *testing.T) {
	h := guard.Harden(hello, "127.0.0.1", "localhost")
	for name, c := range map[string]struct {
		method, target string
		header         http.Header
		want           int
	}{
		"the address":          {"GET", "http://127.0.0.1:8080/", nil, 200},
		"localhost":            {"GET", "http://localhost:8080/", nil, 200},
		"a name that rebinds":  {"GET", "http://attacker.example:8080/", nil, 421},
		"a name that looks so": {"GET", "http://127.0.0.1.attacker.example/", nil, 421},
		"a form of the page":   {"POST", "http://127.0.0.1:8080/pause", http.Header{"Sec-Fetch-Site": {"same-origin"}}, 200},
		"a form of another":    {"POST", "http://127.0.0.1:8080/pause", http.Header{"Sec-Fetch-Site": {"cross-site"}}, 403},
		"another port":         {"POST", "http://127.0.0.1:8080/pause", http.Header{"Sec-Fetch-Site": {"same-site"}}, 403},
		"an old browser":       {"POST", "http://127.0.0.1:8080/pause", http.Header{"Origin": {"http://attacker.example"}}, 403},
	} {
		t.Run(name, func(t *testing.T) {
			got := send(h, c.method, c.target, c.header)
			if got.StatusCode != c.want {
				t.Errorf("status %d, want %d", got.StatusCode, c.want)
			}
			for _, header := range []string{"Content-Security-Policy", "X-Content-Type-Options", "Referrer-Policy", "X-Frame-Options"} {
				if got.Header.Get(header) == "" {
					t.Errorf("no %s", header)
				}
			}
		})
	}
}

func TestDoor_OpensOnceAndForOneBrowser(t *testing.T) {
	d, token := guard.NewDoor("1234", hello)
	if got := send(d, "GET", "http://127.0.0.1/", nil); got.StatusCode != 403 {
		t.Errorf("without a token: %d", got.StatusCode)
	}
	if got := send(d, "GET", "http://127.0.0.1/open?token=wrong", nil); got.StatusCode != 403 {
		t.Errorf("with another token: %d", got.StatusCode)
	}
	if got := send(d, "HEAD", "http://127.0.0.1/open?token="+token, nil); got.StatusCode != 403 {
		t.Errorf("a preview of the address uses it: %d", got.StatusCode)
	}
	got := send(d, "GET", "http://127.0.0.1/open?token="+token, nil)
	if got.StatusCode != 303 || len(got.Cookies()) != 1 {
		t.Fatalf("with the token: %d, %v", got.StatusCode, got.Cookies())
	}
	c := got.Cookies()[0]
	if !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Value == token {
		t.Errorf("cookie %+v", c)
	}
	if got := send(d, "GET", "http://127.0.0.1/", nil, c); got.StatusCode != 200 {
		t.Errorf("with the cookie: %d", got.StatusCode)
	}
	if got := send(d, "GET", "http://127.0.0.1/open?token="+token, nil); got.StatusCode != 403 {
		t.Errorf("with the token once more: %d", got.StatusCode)
	}
	if got := send(d, "GET", "http://127.0.0.1/open?token="+token, nil, c); got.StatusCode != 303 {
		t.Errorf("with the token once more, in the same browser: %d", got.StatusCode)
	}
	if got := send(d, "GET", "http://127.0.0.1/", nil, &http.Cookie{Name: c.Name}); got.StatusCode != 403 {
		t.Errorf("with an empty cookie: %d", got.StatusCode)
	}
}
