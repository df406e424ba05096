package server

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/gleaner-dev/gleaner/internal/ui/page"
)

func (s *Server) showNow(w http.ResponseWriter, r *http.Request, from *Sources) error {
	if from.Now == nil {
		http.Redirect(w, r, "/graph", http.StatusSeeOther)
		return nil
	}
	f, v := s.readNow(r, from)
	f.Refresh, f.Live = 5, "/live/now?"+r.URL.RawQuery
	return s.write(w, r, from, http.StatusOK, f, v)
}

// readNow reads the content of the page Now.
func (s *Server) readNow(r *http.Request, from *Sources) (page.Frame, page.Now) {
	f := s.frame(r, from, "Now")
	v, err := from.Now(r.Context())
	if err != nil {
		v.Failed = err.Error()
	}
	v.CanPause, v.Notice = from.Pause != nil, r.URL.Query().Get("done")
	f.At = s.now()
	return f, v
}

// stream sends the content of the page Now whenever it has changed, as long as the browser is there.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) {
	from := s.sources(r)
	if from.Now == nil {
		http.NotFound(w, r)
		return
	}
	select {
	case s.live <- struct{}{}:
		defer func() { <-s.live }()
	default:
		http.Error(w, "too many pages are open: close some", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	out := http.NewResponseController(w)
	tick := time.NewTicker(liveInterval)
	defer tick.Stop()
	var last []byte
	for {
		f, v := s.readNow(r, from)
		var b bytes.Buffer
		if r.Context().Err() != nil || page.Fragment(&b, f, v) != nil {
			return
		}
		if !bytes.Equal(b.Bytes(), last) {
			last = b.Bytes()
			if err := sendEvent(w, "content", b.String()); err != nil {
				return
			}
		} else if _, err := fmt.Fprint(w, ": nothing new\n\n"); err != nil {
			return
		}
		if out.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
		}
	}
}

// sendEvent sends a server-sent event.
func sendEvent(w http.ResponseWriter, name, data string) error {
	var b strings.Builder
	b.WriteString("event: " + name + "\n")
	for line := range strings.Lines(data) {
		b.WriteString("data: " + strings.TrimRight(line, "\r\n") + "\n")
	}
	b.WriteString("\n")
	_, err := w.Write([]byte(b.String()))
	return err
}

func (s *Server) pause(w http.ResponseWriter, r *http.Request, from *Sources) error {
	if from.Pause == nil {
		return s.failed(w, r, from, http.StatusForbidden, errNoActions)
	}
	var lasts time.Duration
	if text := r.PostFormValue("for"); text != "" {
		var err error
		if lasts, err = time.ParseDuration(text); err != nil || lasts <= 0 {
			return s.failed(w, r, from, http.StatusBadRequest, fmt.Errorf("invalid duration %q: use one such as 1h", text))
		}
	}
	done, err := from.Pause(r.Context(), r.PostFormValue("namespace"), strings.TrimSpace(r.PostFormValue("reason")), lasts)
	return s.finished(w, r, from, done, err)
}

func (s *Server) resume(w http.ResponseWriter, r *http.Request, from *Sources) error {
	if from.Resume == nil {
		return s.failed(w, r, from, http.StatusForbidden, errNoActions)
	}
	done, err := from.Resume(r.Context(), r.PostFormValue("namespace"), r.PostFormValue("name"))
	return s.finished(w, r, from, done, err)
}

// finished goes back to the page Now, which says what was done.
func (s *Server) finished(w http.ResponseWriter, r *http.Request, from *Sources, done string, err error) error {
	if err != nil {
		return s.failed(w, r, from, http.StatusOK, err)
	}
	http.Redirect(w, r, "/?"+url.Values{"done": {done}}.Encode(), http.StatusSeeOther)
	return nil
}

func (s *Server) failed(w http.ResponseWriter, r *http.Request, from *Sources, code int, err error) error {
	return s.write(w, r, from, code, page.Frame{Title: "Not done"}, page.Message{Heading: "The operation failed or is incomplete", Text: err.Error()})
}
