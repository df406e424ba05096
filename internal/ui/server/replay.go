package server

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/ui/page"
)

// showReplay shows the form for a module.
func (s *Server) showReplay(w http.ResponseWriter, r *http.Request, from *Sources) error {
	q := r.URL.Query()
	return s.writeReplay(w, r, from, page.Replay{UID: q.Get("uid"), Time: q.Get("time")})
}

func (s *Server) replay(w http.ResponseWriter, r *http.Request, from *Sources) error {
	name, module, err := upload(r)
	v := page.Replay{UID: r.PostFormValue("uid"), Time: r.PostFormValue("time"), Module: name}
	at, invalid := time.Parse(time.RFC3339Nano, v.Time)
	switch {
	case from.Replay == nil:
		return s.writeReplay(w, r, from, v)
	case err == nil && invalid != nil:
		err = invalid
	}
	if err == nil {
		v.Result, err = from.Replay(r.Context(), types.UID(v.UID), at, name, module)
	}
	if err != nil {
		v.Failed = err.Error()
	}
	return s.writeReplay(w, r, from, v)
}

// upload returns the module in a form.
func upload(r *http.Request) (name string, module []byte, err error) {
	if err := r.ParseMultipartForm(maxUpload); err != nil {
		return "", nil, fmt.Errorf("read the module: %w; it may have %d MiB", err, maxUpload>>20)
	}
	defer func() { _ = r.MultipartForm.RemoveAll() }()
	file, header, err := r.FormFile("module")
	if err != nil {
		return "", nil, fmt.Errorf("select a file with a module: %w", err)
	}
	defer file.Close()
	module, err = io.ReadAll(file)
	return header.Filename, module, err
}

func (s *Server) writeReplay(w http.ResponseWriter, r *http.Request, from *Sources, v page.Replay) error {
	v.Available = from.Replay != nil
	if from.Decision == nil {
		return s.needsCluster(w, r, from)
	}
	if at, err := time.Parse(time.RFC3339Nano, v.Time); err == nil {
		e, err := from.Decision(r.Context(), types.UID(v.UID), at)
		v.Exchanges = page.ExchangesOf(e)
		if err != nil && v.Failed == "" {
			v.Failed = err.Error()
		}
	}
	return s.write(w, r, from, http.StatusOK, page.Frame{Title: "Replay"}, v)
}
