package worker

import (
	"slices"
	"strings"
	"sync"

	"github.com/gleaner-dev/gleaner/policies/worker/confine"
)

// Stats are counts since the Pool was made.
type Stats struct {
	Running map[Scope]int           // workers
	Started map[Scope]int           // workers
	Ended   map[Scope]map[Cause]int // workers
}

// stats counts workers.
type stats struct {
	lock      sync.Mutex // protects the following fields
	started   map[Scope]int
	finished  map[Scope]map[Cause]int
	announced string
}

func (s *stats) startedAt(scope Scope) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.started == nil {
		s.started = map[Scope]int{}
	}
	s.started[scope]++
}

func (s *stats) ended(scope Scope, cause Cause) {
	s.lock.Lock()
	defer s.lock.Unlock()
	if s.finished == nil {
		s.finished = map[Scope]map[Cause]int{}
	}
	if s.finished[scope] == nil {
		s.finished[scope] = map[Cause]int{}
	}
	s.finished[scope][cause]++
}

// Stats returns the counts.
func (p *Pool) Stats() Stats {
	s := &p.stats
	s.lock.Lock()
	defer s.lock.Unlock()
	now := Stats{Running: map[Scope]int{}, Started: map[Scope]int{}, Ended: map[Scope]map[Cause]int{}}
	for _, scope := range []Scope{ScopeCluster, ScopeNamespace} {
		now.Started[scope], now.Running[scope] = s.started[scope], s.started[scope]
		now.Ended[scope] = map[Cause]int{}
		for _, cause := range causes {
			now.Ended[scope][cause] = s.finished[scope][cause]
			now.Running[scope] -= s.finished[scope][cause]
		}
	}
	return now
}

// announce logs once how workers are confined, and again when that changes.
func (p *Pool) announce(active []string) {
	active = slices.Sorted(slices.Values(active))
	text := strings.Join(active, ", ")
	p.stats.lock.Lock()
	same := p.stats.announced == text+"."
	p.stats.announced = text + "."
	p.stats.lock.Unlock()
	if same {
		return
	}
	p.config.Log.Info("Sandbox workers are confined", "active", active, "missing", missing(active))
}

// missing are the restrictions that are not active.
func missing(active []string) []string {
	var list []string
	for _, name := range []string{confine.Landlock, confine.Limits, confine.Namespaces, confine.Seccomp} {
		if !slices.Contains(active, name) {
			list = append(list, name)
		}
	}
	return list
}
