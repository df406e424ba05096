// Package retain decides what goes and what stays of objects, images or containers, by age, by number, and by the space that
// they use: the limits of the kubelet's collectors of images and containers, of the collector of terminated Pods, of history
// limits and of the time to live after the end, in one place.
//
// It is pure: candidates, a rule, the usage and the time come in, and an ordered list of removals with reasons comes out, with
// the time at which the same question has another answer. It reads nothing, removes nothing, and remembers nothing. A component that
// carries out a removal reads the candidate again before.
//
// What is not known keeps a candidate: the zero Use is not unused, and a time that is zero is not long ago.
package retain

import (
	"cmp"
	"slices"
	"time"
)

// Use is whether something uses a candidate. It is determined again for each evaluation (P-03).
type Use uint8

// The values of Use. The zero value keeps the candidate.
const (
	UseUnknown Use = iota
	Used
	Unused
)

// Candidate is something that a rule selects.
type Candidate struct {
	ID    string // unique in an Input
	Group string // limits by group apply to all candidates with an equal one (P-01)

	Use         Use
	Pinned      bool   // someone has marked it to stay
	Terminating bool   // it is being deleted: it stays out of all limits
	Protected   string // why it must not be removed otherwise; "": it may be
	Counted     bool   // it counts for limits by number even where only what can be removed does
	GroupGone   bool   // what its group belongs to no longer exists (P-17)

	Created   time.Time
	FirstSeen time.Time // when it was detected
	LastUsed  time.Time // zero: no use was seen
	Priority  int       // those with a lower one go first, whatever the order

	IsFinished bool
	Finished   time.Time      // when it finished, according to the condition that says so
	TTL        *time.Duration // after that, in place of the rule's

	Size int64 // bytes that its removal frees
}

// Clock is a time of a candidate that ages or orders count from (P-04).
type Clock uint8

// The clocks. The zero value is the time of the last use; for an age, that is when the candidate was first seen if no use was.
const (
	ByLastUse Clock = iota
	ByFirstSeen
	ByCreation
	ByFinish
)

// Counting is which candidates count for KeepLast and MaxTotal, and what happens to those among the oldest that can't be
// removed (P-11).
type Counting uint8

// The values of Counting. The zero value removes the least.
const (
	// CountAll counts all that are not terminating. One that can't be removed is skipped, and not replaced: so do Deployments.
	CountAll Counting = iota

	// CountAllAndReplace counts them, too. In place of one that can't be removed, the next one is: so do DaemonSets.
	CountAllAndReplace

	// CountRemovable counts those only that can be removed: so does the kubelet for containers.
	CountRemovable
)

// Rule is the limits. The zero Rule removes nothing.
type Rule struct {
	// MinAge is how old a candidate must be, by MinAgeFrom, before any limit applies (P-02).
	MinAge     time.Duration
	MinAgeFrom Clock

	// MaxAge removes what is older, by MaxAgeFrom, and MaxUnused what was not used for longer (P-05). 0: no limit.
	MaxAge     time.Duration
	MaxAgeFrom Clock
	MaxUnused  time.Duration

	// TTL removes what has been finished for this time (P-12). Nil: only candidates with a TTL of their own.
	TTL *time.Duration

	// KeepLast is how many of each group stay, and MaxTotal of all (P-09). Nil or negative: no limit.
	KeepLast, MaxTotal *int
	Counting           Counting

	// Watermarks are limits of the usage. Nil: no limit.
	Watermarks *Watermarks

	Order Clock // of removals: the oldest goes first (P-08)
	Drain bool  // removes all that is unused, whatever the usage is (P-24)
}

// Watermarks are percentages of the capacity. At High or above it, the oldest candidates are removed until Low is reached
// (P-06). 0 ≤ Low < High ≤ 100.
type Watermarks struct{ High, Low int }

// Usage is how full what has the candidates is, in bytes.
type Usage struct{ Capacity, Available int64 }

// Input is what is decided about.
type Input struct {
	Candidates []Candidate
	Rule       Rule
	Now        time.Time

	// Usage is nil if it is not known; then watermarks remove nothing.
	Usage *Usage

	// Since is when the caller began to observe uses, if it remembers them in memory only: what was not used for a time
	// is known after that time. Zero: uses are known from before.
	Since time.Time

	// GroupsRead is set when all that groups belong to has been read. Until then, no group counts as gone.
	GroupsRead bool
}

// Reason is why a candidate is removed or stays.
type Reason string

// The reasons for removals.
const (
	GroupGone Reason = "GroupGone" // what its group belongs to no longer exists
	TooOld    Reason = "MaxAge"
	NotUsed   Reason = "MaxUnused"
	Expired   Reason = "Expired" // its time to live has ended
	Excess    Reason = "KeepLast"
	Surplus   Reason = "MaxTotal"
	Pressure  Reason = "Usage" // the usage is too high
	Drained   Reason = "Drain"
)

// The reasons for staying.
const (
	IsUsed        Reason = "InUse"
	MaybeUsed     Reason = "UseUnknown"
	IsPinned      Reason = "Pinned"
	IsTerminating Reason = "Terminating"
	IsProtected   Reason = "Protected"
	TooYoung      Reason = "MinAge"
	AgeUnknown    Reason = "AgeUnknown"
	WithinLimits  Reason = "WithinLimits"
)

// Decision is what happens to a candidate, and why.
type Decision struct {
	Candidate int // position in Input.Candidates
	Reason    Reason

	// Due is when a limit removes a candidate that stays, if nothing changes before. Zero: that is not known in advance.
	Due time.Time
}

// Plan is the result of an evaluation.
type Plan struct {
	Removals []Decision // in the order in which they are carried out
	Kept     []Decision // in the order of the candidates

	// Next is when an evaluation of the same candidates has another result (P-14). Zero: only when something changes.
	Next time.Time

	// ToFree is how many bytes had to be freed, and Shortfall how many of them no removal of the plan frees (P-07, P-20).
	ToFree, Shortfall int64

	Problems []Problem
}

// Problem is something wrong with the input, for a person.
type Problem struct {
	Candidate int // position in Input.Candidates; -1: of none
	Message   string
}

// Evaluate decides about all candidates. Removals that are the result of one limit are taken into account by the next, as if
// they had succeeded (P-19): first groups that are gone, then ages and times to live, then the usage, then numbers.
func Evaluate(in Input) Plan {
	e := newEvaluation(in)
	e.removeGroups()
	e.removeByAge()
	e.removeExpired()
	e.drain()
	e.freeSpace()
	e.limitNumbers()
	return e.finish()
}

// item is the state of a candidate in an evaluation.
type item struct {
	*Candidate
	at       int    // position in Input.Candidates
	blocked  Reason // why it can't be removed; "": it can
	young    bool   // it can't be removed yet
	removed  Reason
	oldFrom  time.Time // when young ends; zero: never, or not known
	position time.Time // in the order
	due      time.Time // when a limit removes it; zero: not known
}

// removable reports whether a limit may remove it now.
func (i *item) removable() bool { return i.removed == "" && i.blocked == "" && !i.young }

type evaluation struct {
	Input
	plan    Plan
	items   []*item // in the order of removal
	missing bool    // a limit could not remove all that it had to
}

func newEvaluation(in Input) *evaluation {
	e := &evaluation{Input: in}
	all := make([]item, len(in.Candidates))
	for n := range in.Candidates {
		c := &in.Candidates[n]
		i := &all[n]
		*i = item{Candidate: c, at: n, blocked: blockedBy(c), position: c.time(in.Rule.Order)}
		if from := c.ageFrom(in.Rule.MinAgeFrom); in.Rule.MinAge > 0 && from.IsZero() {
			i.young = true
		} else if in.Rule.MinAge > 0 {
			i.oldFrom = from.Add(in.Rule.MinAge)
			i.young = in.Now.Before(i.oldFrom)
		}
		e.items = append(e.items, i)
	}
	slices.SortFunc(e.items, func(a, b *item) int {
		return cmp.Or(cmp.Compare(a.Priority, b.Priority), a.position.Compare(b.position), a.FirstSeen.Compare(b.FirstSeen), cmp.Compare(a.ID, b.ID))
	})
	return e
}

// blockedBy returns why a candidate can't be removed, whatever the limits are (P-02).
func blockedBy(c *Candidate) Reason {
	switch {
	case c.Terminating:
		return IsTerminating
	case c.Pinned:
		return IsPinned
	case c.Protected != "":
		return IsProtected
	case c.Use == Used:
		return IsUsed
	case c.Use != Unused:
		return MaybeUsed
	default:
		return ""
	}
}

// time returns the time of a candidate by a clock.
func (c *Candidate) time(by Clock) time.Time {
	switch by {
	case ByFirstSeen:
		return c.FirstSeen
	case ByCreation:
		return c.Created
	case ByFinish:
		return c.Finished
	default:
		return c.LastUsed
	}
}

// ageFrom returns when a candidate's age by a clock began; zero if that is not known.
func (c *Candidate) ageFrom(by Clock) time.Time {
	at := c.time(by)
	if by == ByLastUse && at.Before(c.FirstSeen) {
		return c.FirstSeen
	}
	return at
}

func (e *evaluation) remove(i *item, why Reason) {
	i.removed = why
	e.plan.Removals = append(e.plan.Removals, Decision{Candidate: i.at, Reason: why})
}

// removeFrom removes a candidate if a time has come at which a limit applies to it and it is old enough, and notes that time
// otherwise.
func (e *evaluation) removeFrom(i *item, at time.Time, why Reason) {
	switch at = latest(at, i.oldFrom); {
	case i.removed != "", i.blocked != "", i.young && i.oldFrom.IsZero():
	case e.Now.Before(at):
		e.due(at)
		if i.due.IsZero() || at.Before(i.due) {
			i.due = at
		}
	default:
		e.remove(i, why)
	}
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// due notes a time at which the result changes.
func (e *evaluation) due(at time.Time) {
	if at.After(e.Now) && (e.plan.Next.IsZero() || at.Before(e.plan.Next)) {
		e.plan.Next = at
	}
}

func (e *evaluation) problem(at int, message string) {
	e.plan.Problems = append(e.plan.Problems, Problem{at, message})
}

// finish adds what stays, and why.
func (e *evaluation) finish() Plan {
	slices.SortStableFunc(e.plan.Problems, func(a, b Problem) int { return cmp.Compare(a.Candidate, b.Candidate) })
	newlyCounted := e.Rule.Counting == CountRemovable && (e.Rule.KeepLast != nil || e.Rule.MaxTotal != nil)
	kept := make([]Decision, len(e.items))
	for _, i := range e.items {
		switch {
		case i.removed != "":
		case i.blocked != "":
			kept[i.at] = Decision{Reason: i.blocked}
		case i.young && i.oldFrom.IsZero():
			kept[i.at] = Decision{Reason: AgeUnknown}
		case i.young:
			kept[i.at] = Decision{Reason: TooYoung, Due: i.due}
			if e.missing || newlyCounted {
				e.due(i.oldFrom)
			}
		default:
			kept[i.at] = Decision{Reason: WithinLimits, Due: i.due}
		}
	}
	for at, d := range kept {
		if d.Reason != "" {
			d.Candidate = at
			e.plan.Kept = append(e.plan.Kept, d)
		}
	}
	return e.plan
}
