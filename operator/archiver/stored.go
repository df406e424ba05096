package archiver

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/policyset"
)

const (
	// maxStored bounds the objects whose last entry is remembered: when there are twice as many, the
	// older half is forgotten. Each takes about 500 bytes.
	maxStored = 10_000

	// repeated is for how long an entry also counts for the same deletion, which is retried soon if it
	// has failed or had to wait. It is much shorter than the shortest TTL, a minute: the entry expires
	// that much earlier after the deletion.
	repeated = 10 * time.Second
)

// stored remembers the last entry of each object, so that a deletion that is tried again has no
// second one. The zero value is ready to use. Its methods may be called concurrently.
type stored struct{ entries memory[storedEntry] }

// storedEntry is what a durable entry was stored of, and for what.
type storedEntry struct {
	resourceVersion string
	policies        string // and their generations
	cause           archive.Cause
	time            time.Time
}

func (s *stored) add(object *unstructured.Unstructured, by []*policyset.Archive, cause archive.Cause, now time.Time) {
	if object.GetResourceVersion() == "" { // which stands for no state
		return
	}
	s.entries.put(object.GetUID(), storedEntry{object.GetResourceVersion(), generationsOf(by), cause, now}, maxStored)
}

// has reports whether the object, in the state that it is in, was stored a moment ago for the same
// policies and the same cause.
func (s *stored) has(object *unstructured.Unstructured, by []*policyset.Archive, cause archive.Cause, now time.Time) bool {
	e, ok := s.entries.get(object.GetUID())
	age := now.Sub(e.time)
	return ok && e.resourceVersion == object.GetResourceVersion() && e.policies == generationsOf(by) && e.cause == cause && age >= 0 && age < repeated
}

func generationsOf(by []*policyset.Archive) string {
	var b strings.Builder
	for _, p := range by {
		fmt.Fprintf(&b, "%s@%d ", p.Object.GetUID(), p.Object.GetGeneration())
	}
	return b.String()
}
