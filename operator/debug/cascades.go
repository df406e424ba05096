package debug

import (
	"net/http"
	"slices"

	"github.com/gleaner-dev/gleaner/operator/cascadelog"
	"github.com/gleaner-dev/gleaner/operator/completion"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// maxShownOwners is the number of owners of a cascade that are shown.
const maxShownOwners = 20

// Cascades are the cascades that this replica has observed, the oldest first.
type Cascades struct {
	InProgress []completion.Cascade   `json:"inProgress"`
	Completed  []cascadelog.Completed `json:"completed"` // the last 100
}

// cascades serves the cascades whose roots the client may get.
func (s Source) cascades(w http.ResponseWriter, r *http.Request) {
	all, canRead := s.Cascades(), s.ReadAccess(r)
	allowed := func(c completion.Cascade) bool {
		return canRead(record.Object{APIVersion: c.Root.APIVersion, Kind: c.Root.Kind, Namespace: c.Root.Namespace, Name: c.Root.Name})
	}
	shown := Cascades{InProgress: []completion.Cascade{}, Completed: []cascadelog.Completed{}}
	for _, c := range all.InProgress {
		if allowed(c) {
			c.Owners = slices.Clone(c.Owners[:min(len(c.Owners), maxShownOwners)])
			shown.InProgress = append(shown.InProgress, c)
		}
	}
	for _, c := range all.Completed {
		if allowed(c.Cascade) {
			shown.Completed = append(shown.Completed, c)
		}
	}
	writeJSON(w, shown)
}
