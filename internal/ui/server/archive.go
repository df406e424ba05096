package server

import (
	"net/http"

	"github.com/gleaner-dev/gleaner/internal/ui/page"
)

func (s *Server) showArchive(w http.ResponseWriter, r *http.Request, from *Sources) error {
	if from.Archive == nil {
		return s.needsCluster(w, r, from)
	}
	f, v := s.frame(r, from, "Archive"), page.Archive{Query: page.ParseArchiveQuery(r.URL.Query())}
	v.Query.Namespace = f.Namespace
	var err error
	if v.Entries, v.More, err = from.Archive(r.Context(), v.Query.Query(s.now()), page.MaxEntries); err != nil {
		v.Failed = err.Error()
	}
	return s.write(w, r, from, http.StatusOK, f, v)
}

func (s *Server) showArchived(w http.ResponseWriter, r *http.Request, from *Sources) error {
	if from.Archived == nil {
		return s.needsCluster(w, r, from)
	}
	return s.writeArchived(w, r, from, r.URL.Query().Get("id"), func(*page.Archived) {})
}

func (s *Server) restore(w http.ResponseWriter, r *http.Request, from *Sources) error {
	if from.Restore == nil {
		return s.failed(w, r, from, http.StatusForbidden, errNoActions)
	}
	id := r.PostFormValue("id")
	v, err := from.Archived(r.Context(), id)
	if err != nil {
		return s.failed(w, r, from, http.StatusOK, err)
	}
	result, err := from.Restore(r.Context(), v.Header.Object.UID, r.PostFormValue("dry-run") != "")
	return s.writeArchived(w, r, from, id, func(v *page.Archived) {
		if v.Result = result; err != nil {
			v.Failed = err.Error()
		}
	})
}

// writeArchived shows an entry, with what was just done.
func (s *Server) writeArchived(w http.ResponseWriter, r *http.Request, from *Sources, id string, done func(*page.Archived)) error {
	v, err := from.Archived(r.Context(), id)
	if err != nil {
		v.Failed = err.Error()
	}
	v.CanRestore = from.Restore != nil
	done(&v)
	return s.write(w, r, from, http.StatusOK, page.Frame{Title: "Archived object"}, v)
}
