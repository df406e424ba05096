// Package pause says what pauses stop: writes that delete, release or orphan an object, or that
// reach outside the cluster. What protects an object passes, as does its state.
//
// It is pure but for Step, which asks for the pauses in force immediately before each write. It
// reads no resources, and queues nothing again.
package pause

import (
	"cmp"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Pause is one Pause or ClusterPause.
type Pause struct {
	UID       types.UID
	Namespace string // that it is limited to; "" for a ClusterPause
	Name      string

	// Policy is the policy or finalizer whose decisions it is limited to, as its String method
	// returns it; "": it stops whatever decides.
	Policy string

	Reason string    // as its author wrote it; may be ""
	Until  time.Time // when it ends; zero: when it is deleted
}

// String returns the kind and the name.
func (p Pause) String() string {
	if p.Namespace == "" {
		return "ClusterPause " + p.Name
	}
	return "Pause " + p.Namespace + "/" + p.Name
}

// Ended reports whether the pause has ended by itself.
func (p Pause) Ended(now time.Time) bool { return !p.Until.IsZero() && !now.Before(p.Until) }

// scope is what a pause is limited to.
type scope struct{ namespace, policy string }

// Set has pauses, including those that have ended. The zero Set stops nothing. It must not be changed.
type Set struct {
	all []Pause

	// by has the pause of each scope that lasts the longest: however many there are, a lookup takes
	// the same time.
	by map[scope]Pause
}

// NewSet returns a Set.
func NewSet(all []Pause) *Set {
	s := &Set{all: slices.Clone(all), by: map[scope]Pause{}}
	slices.SortFunc(s.all, func(a, b Pause) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	})
	for _, p := range s.all {
		at := scope{p.Namespace, p.Policy}
		if known, ok := s.by[at]; !ok || lastsLonger(p, known) {
			s.by[at] = p
		}
	}
	return s
}

func lastsLonger(a, b Pause) bool {
	return !b.Until.IsZero() && (a.Until.IsZero() || a.Until.After(b.Until))
}

// Stopping returns a pause that stops what a policy has decided about an object in a namespace.
// The policy is "" if none has decided, and the namespace for a cluster-scoped object.
func (s *Set) Stopping(namespace, policy string, now time.Time) (Pause, bool) {
	if len(s.by) == 0 {
		return Pause{}, false
	}
	for _, at := range [...]scope{{}, {namespace, ""}, {"", policy}, {namespace, policy}} {
		if p, ok := s.by[at]; ok && !p.Ended(now) {
			return p, true
		}
	}
	return Pause{}, false
}

// All returns all pauses, those of the cluster first. They must not be changed.
func (s *Set) All() []Pause { return s.all }

// InForce returns the pauses that have not ended.
func (s *Set) InForce(now time.Time) []Pause {
	return slices.DeleteFunc(slices.Clone(s.all), func(p Pause) bool { return p.Ended(now) })
}

// NextEnd returns when the next pause ends by itself; zero: none does.
func (s *Set) NextEnd(now time.Time) (next time.Time) {
	for _, p := range s.all {
		if !p.Until.IsZero() && !p.Ended(now) && (next.IsZero() || p.Until.Before(next)) {
			next = p.Until
		}
	}
	return next
}

// IsNarrower reports whether something that a set stopped at one time is not stopped by another set
// at a later time: then what was stopped has to be decided about again.
func IsNarrower(than *Set, then time.Time, s *Set, now time.Time) bool {
	for at, before := range than.by {
		if before.Ended(then) {
			continue
		}
		if after, ok := s.by[at]; !ok || after.Ended(now) {
			return true
		}
	}
	return false
}
