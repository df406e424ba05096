// Package guard protects the web UI from everything but the person it is for: other pages in the same browser, other programs
// on the machine, and text from the cluster that is more than text.
package guard

import (
	"crypto/rand"
	"crypto/subtle"
	"net"
	"net/http"
	"strings"
	"sync"
)

// policy allows what the pages have: nothing from elsewhere, and nothing that is written in a page itself.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"

// Harden protects a handler. Requests for hosts that are not listed are refused with 421, because a name that someone else
// controls can resolve to this address (DNS rebinding). Cross-origin requests that are not safe are refused with 403 (CSRF).
// Responses get headers with a Content-Security-Policy, and others that restrict what browsers do with them.
//
// A host is the value of the Host header without the port.
func Harden(next http.Handler, hosts ...string) http.Handler {
	origin := http.NewCrossOriginProtection().Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("X-Frame-Options", "DENY")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Cache-Control", "no-store")
		if !isHost(r.Host, hosts) {
			http.Error(w, "unknown host: use the address that was printed", http.StatusMisdirectedRequest)
			return
		}
		origin.ServeHTTP(w, r)
	})
}

func isHost(header string, hosts []string) bool {
	name, _, err := net.SplitHostPort(header)
	if err != nil {
		name = header
	}
	name = strings.Trim(name, "[]")
	for _, host := range hosts {
		if strings.EqualFold(name, host) {
			return true
		}
	}
	return false
}

// Door is opened by a token, once. The browser that used it is let in from then on, by a cookie.
type Door struct {
	cookie string // name
	next   http.Handler

	mu      sync.Mutex // covers what follows
	token   string     // "": used
	session string
}

// NewDoor returns a Door before a handler, and the token that opens it. The name tells the cookies of several programs on one
// host apart: cookies do not have ports.
func NewDoor(name string, next http.Handler) (d *Door, token string) {
	token = rand.Text()
	return &Door{cookie: "gleaner-" + name, next: next, token: token}, token
}

// ServeHTTP implements http.Handler.
func (d *Door) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	given := r.URL.Query().Get("token")
	switch {
	case r.URL.Path == "/open" && r.Method == http.MethodGet && d.open(w, given), r.URL.Path == "/open" && d.isIn(r):
		http.Redirect(w, r, "/", http.StatusSeeOther)
	case r.URL.Path == "/open" && given != "":
		http.Error(w, "this address was used before: run the command again for a new one", http.StatusForbidden)
	case !d.isIn(r):
		http.Error(w, "open the address that gleaner ui has printed", http.StatusForbidden)
	default:
		d.next.ServeHTTP(w, r)
	}
}

// open begins the session if the token is the right one.
func (d *Door) open(w http.ResponseWriter, given string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.token == "" || subtle.ConstantTimeCompare([]byte(given), []byte(d.token)) != 1 {
		return false
	}
	d.token, d.session = "", rand.Text()
	http.SetCookie(w, &http.Cookie{Name: d.cookie, Value: d.session, Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode})
	return true
}

func (d *Door) isIn(r *http.Request) bool {
	c, err := r.Cookie(d.cookie)
	if err != nil {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.session != "" && subtle.ConstantTimeCompare([]byte(c.Value), []byte(d.session)) == 1
}
