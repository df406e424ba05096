package cascadelog

import (
	"time"

	"github.com/gleaner-dev/gleaner/operator/completion"
	"github.com/gleaner-dev/gleaner/operator/decide"
)

// queue has the reports that are not written yet. Namespaces take turns, so that one with many reports delays no other. The
// zero queue is empty. It must not be used concurrently.
type queue struct {
	of    map[string][]report // by namespace
	turns []string            // namespaces with reports; the first one is next
	lost  int
}

// add adds a report. If its namespace has too many, the oldest one is evicted.
func (q *queue) add(r report) {
	namespace := r.Root.Namespace
	if q.of == nil {
		q.of = map[string][]report{}
	}
	waiting := q.of[namespace]
	switch {
	case len(waiting) == 0 && len(q.turns) >= maxNamespaces:
		q.lost++
		return
	case len(waiting) == 0:
		q.turns = append(q.turns, namespace)
	case len(waiting) >= maxPending:
		q.lost++
		waiting = waiting[1:]
	}
	q.of[namespace] = append(waiting, r)
}

// take removes at most n reports.
func (q *queue) take(n int) (all []report) {
	for len(all) < n && len(q.turns) != 0 {
		namespace := q.turns[0]
		q.turns = q.turns[1:]
		waiting := q.of[namespace]
		all = append(all, waiting[0])
		if q.of[namespace] = waiting[1:]; len(waiting) == 1 {
			delete(q.of, namespace)
		} else {
			q.turns = append(q.turns, namespace)
		}
	}
	return all
}

// expire removes the reports from before a time.
func (q *queue) expire(before time.Time) {
	var turns []string
	for _, namespace := range q.turns {
		waiting := q.of[namespace]
		for len(waiting) != 0 && waiting[0].at.Before(before) {
			waiting = waiting[1:]
		}
		if q.of[namespace] = waiting; len(waiting) == 0 {
			delete(q.of, namespace)
		} else {
			turns = append(turns, namespace)
		}
	}
	q.turns = turns
}

// completed returns the cascades that have completed. Without owners, they complete again in another process.
func (q *queue) completed() (all []completion.Cascade) {
	for _, namespace := range q.turns {
		for _, r := range q.of[namespace] {
			if r.reason == decide.CascadeCompleted {
				all = append(all, r.Cascade)
			}
		}
	}
	return all
}
