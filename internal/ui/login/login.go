// Package login lets users log in to the web UI with a token of the cluster. Each session has pages of its own, which read with the
// permissions of its user. The number of sessions, and of attempts, is limited.
package login

import (
	"bytes"
	"context"
	"crypto/rand"
	"net/http"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/gleaner-dev/gleaner/internal/ui/page"
)

const (
	cookieName = "__Host-gleaner" // with this prefix, browsers take it from this host only, and only by TLS

	maxSessions  = 100
	maxOfUser    = 3                // a further one ends the oldest
	idleLimit    = 30 * time.Minute // without a request
	lifetime     = 8 * time.Hour
	attemptLimit = 10 * time.Second // for the API server to say who a token is of
	attemptsPer  = time.Second      // between two attempts, beyond attemptBurst
	attemptBurst = 10
	maxTokenForm = 32 << 10 // bytes
	sweep        = time.Minute
)

// Session is what one user sees.
type Session struct {
	User  string
	Pages http.Handler
	Close func() // called once, when it has ended
}

// Open begins a session with a token. Its error is shown to who has sent the token.
type Open func(ctx context.Context, token string) (Session, error)

// Handler lets users log in. Create it with New, and run it.
type Handler struct {
	from     string
	open     Open
	now      func() time.Time
	attempts *rate.Limiter
	mux      *http.ServeMux

	mu  sync.Mutex // covers all
	all map[string]*session
}

type session struct {
	Session
	began, used time.Time
	ended       context.Context    // requests of the session end with it, such as event streams
	end         context.CancelFunc // of ended
}

// close ends the requests of the session, and then the session.
func (s *session) close() {
	s.end()
	s.Close()
}

// New returns a Handler for a cluster with a name.
func New(from string, open Open, static http.Handler, now func() time.Time) *Handler {
	h := &Handler{
		from: from, open: open, now: now, attempts: rate.NewLimiter(rate.Every(attemptsPer), attemptBurst), mux: http.NewServeMux(), all: map[string]*session{},
	}
	h.mux.HandleFunc("GET /login", func(w http.ResponseWriter, r *http.Request) { h.form(w, http.StatusOK, r.URL.Query().Get("next"), "") })
	h.mux.HandleFunc("POST /login", h.logIn)
	h.mux.HandleFunc("POST /logout", h.logOut)
	h.mux.Handle("GET /static/", static) // of the form, too
	h.mux.HandleFunc("/", h.pages)
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// Run ends sessions that have expired, until the context ends; then it ends all.
func (h *Handler) Run(ctx context.Context) {
	tick := time.NewTicker(sweep)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			h.end(func(*session) bool { return true })
			return
		case <-tick.C:
			h.end(h.expired)
		}
	}
}

func (h *Handler) expired(s *session) bool {
	now := h.now()
	return now.Sub(s.used) > idleLimit || now.Sub(s.began) > lifetime
}

// end ends some sessions.
func (h *Handler) end(which func(*session) bool) {
	h.mu.Lock()
	var ended []*session
	for id, s := range h.all {
		if which(s) {
			ended = append(ended, s)
			delete(h.all, id)
		}
	}
	h.mu.Unlock()
	for _, s := range ended {
		s.close()
	}
}

// find returns the session of a request; nil if there is none.
func (h *Handler) find(r *http.Request) *session {
	c, err := r.Cookie(cookieName)
	if err != nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.all[c.Value]
	if s == nil || h.expired(s) {
		return nil
	}
	s.used = h.now()
	return s
}

func (h *Handler) pages(w http.ResponseWriter, r *http.Request) {
	if s := h.find(r); s != nil {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.ended, cancel)()
		s.Pages.ServeHTTP(w, r.WithContext(ctx))
		return
	}
	if r.Method != http.MethodGet || strings.HasPrefix(r.URL.Path, "/live/") {
		http.Error(w, "log in again: the session has ended", http.StatusUnauthorized)
		return
	}
	h.form(w, http.StatusUnauthorized, r.URL.RequestURI(), "")
}

// form shows the form for a token.
func (h *Handler) form(w http.ResponseWriter, code int, next, failed string) {
	m := page.Message{Heading: "Log in", Text: "Pages show what your token is allowed to read.", Login: true, Next: local(next), Failed: failed}
	var b bytes.Buffer
	if err := page.Render(&b, page.Frame{Title: "Log in", From: h.from, Bare: true}, m); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(code)
	_, _ = b.WriteTo(w) // the browser is gone
}

// local returns an address of these pages: any other is replaced.
func local(address string) string {
	if !strings.HasPrefix(address, "/") || strings.HasPrefix(address, "//") || strings.ContainsAny(address, "\\\r\n") || strings.HasPrefix(address, "/login") {
		return "/"
	}
	return address
}

func (h *Handler) logIn(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxTokenForm)
	token, next := strings.TrimSpace(r.PostFormValue("token")), r.PostFormValue("next")
	switch {
	case token == "":
		h.form(w, http.StatusBadRequest, next, "Enter a token.")
		return
	case !h.attempts.Allow():
		h.form(w, http.StatusTooManyRequests, next, "Too many attempts: try again in a few seconds.")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), attemptLimit)
	defer cancel()
	opened, err := h.open(ctx, token)
	if err != nil {
		h.form(w, http.StatusForbidden, next, err.Error())
		return
	}
	id := rand.Text()
	if !h.add(id, opened) {
		opened.Close()
		h.form(w, http.StatusServiceUnavailable, next, "Too many users are logged in: try again later.")
		return
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Value: id, Path: "/", MaxAge: int(lifetime.Seconds()), Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, local(next), http.StatusSeeOther)
}

// add adds a session, unless there are too many of other users.
func (h *Handler) add(id string, opened Session) bool {
	h.end(h.expired)
	h.mu.Lock()
	var oldest string
	of := 0
	for known, s := range h.all {
		if s.User != opened.User {
			continue
		}
		of++
		if oldest == "" || s.began.Before(h.all[oldest].began) {
			oldest = known
		}
	}
	var ended *session
	if of >= maxOfUser {
		ended = h.all[oldest]
		delete(h.all, oldest)
	}
	fits := len(h.all) < maxSessions
	if fits {
		ended, end := context.WithCancel(context.Background())
		h.all[id] = &session{Session: opened, began: h.now(), used: h.now(), ended: ended, end: end}
	}
	h.mu.Unlock()
	if ended != nil {
		ended.close()
	}
	return fits
}

func (h *Handler) logOut(w http.ResponseWriter, r *http.Request) {
	if s := h.find(r); s != nil {
		h.end(func(other *session) bool { return other == s })
	}
	http.SetCookie(w, &http.Cookie{Name: cookieName, Path: "/", MaxAge: -1, Secure: true, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}
