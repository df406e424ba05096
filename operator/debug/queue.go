package debug

import (
	"net/http"
	"time"

	"github.com/gleaner-dev/gleaner/operator/record"
)

// Queue is what this replica has queued.
type Queue struct {
	Length int      `json:"length"` // objects that are queued or being reconciled
	Oldest []Queued `json:"oldest"` // a few of them, the oldest first
}

// Queued is an object that is queued or being reconciled.
type Queued struct {
	Object      record.Object `json:"object"`
	Since       time.Time     `json:"since"` // when it was queued
	Reconciling bool          `json:"reconciling,omitempty"`
}

// queue serves the queue, with the objects that the client may get.
func (s Source) queue(w http.ResponseWriter, r *http.Request) {
	q, canRead := s.Queue(), s.ReadAccess(r)
	shown := Queue{Length: q.Length, Oldest: []Queued{}}
	for _, o := range q.Oldest {
		if canRead(o.Object) {
			shown.Oldest = append(shown.Oldest, o)
		}
	}
	writeJSON(w, shown)
}
