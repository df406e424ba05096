package retain

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// removeGroups removes all candidates of groups that are gone (P-17).
func (e *evaluation) removeGroups() {
	for _, i := range e.items {
		if e.GroupsRead && i.GroupGone {
			e.removeFrom(i, e.Now, GroupGone)
		}
	}
}

// removeByAge removes what is too old, or was not used for too long (P-05).
func (e *evaluation) removeByAge() {
	e.removeOlder(e.Rule.MaxAge, e.Rule.MaxAgeFrom, TooOld)
	e.removeOlder(e.Rule.MaxUnused, ByLastUse, NotUsed)
}

func (e *evaluation) removeOlder(most time.Duration, by Clock, why Reason) {
	if most <= 0 {
		return
	}
	known := time.Time{}
	if by == ByLastUse && !e.Since.IsZero() {
		known = beyond(e.Since, most)
	}
	for _, i := range e.items {
		if from := i.ageFrom(by); !from.IsZero() {
			e.removeFrom(i, latest(beyond(from, most), known), why)
		}
	}
}

// beyond returns the first moment at which something from a time is older than an age.
func beyond(from time.Time, age time.Duration) time.Time { return from.Add(age).Add(1) }

// removeExpired removes what has been finished for its time to live (P-12).
func (e *evaluation) removeExpired() {
	for _, i := range e.items {
		ttl := i.TTL
		if ttl == nil {
			ttl = e.Rule.TTL
		}
		if ttl == nil || !i.IsFinished || i.removed != "" || i.blocked != "" {
			continue
		}
		switch {
		case *ttl < 0:
			e.problem(i.at, fmt.Sprintf("its time to live of %s is negative: it stays", *ttl))
			continue
		case i.Finished.IsZero():
			e.problem(i.at, "it has finished, and no condition says when: it stays")
			continue
		}
		if i.Finished.After(e.Now) {
			e.problem(i.at, fmt.Sprintf("it finished at %s, which is in the future: clocks differ", i.Finished.UTC().Format(time.RFC3339)))
		}
		e.removeFrom(i, i.Finished.Add(*ttl), Expired)
	}
}

// drain removes all that may be removed (P-24).
func (e *evaluation) drain() {
	if !e.Rule.Drain {
		return
	}
	for _, i := range e.items {
		switch {
		case i.removable():
			e.remove(i, Drained)
		case i.removed == "" && i.blocked == "":
			e.missing = true
		}
	}
}

// freeSpace removes the oldest until the usage is low (P-06, P-07).
func (e *evaluation) freeSpace() {
	w := e.Rule.Watermarks
	if w == nil || e.Usage == nil {
		return
	}
	capacity, available := e.Usage.Capacity, e.Usage.Available
	switch {
	case w.Low < 0 || w.Low >= w.High || w.High > 100:
		e.problem(-1, fmt.Sprintf("the watermarks %d and %d are not 0 ≤ low < high ≤ 100", w.Low, w.High))
		return
	case capacity <= 0 || available < 0:
		e.problem(-1, fmt.Sprintf("the capacity is %d bytes, of which %d are available: that can't be", capacity, available))
		return
	}
	for _, d := range e.plan.Removals {
		available += max(e.Candidates[d.Candidate].Size, 0)
	}
	available = min(available, capacity)
	if used := 100 - percent(available, capacity); used < w.High {
		return
	}
	e.plan.ToFree = share(capacity, 100-w.Low) - available
	left := e.plan.ToFree
	for _, i := range e.items {
		if left <= 0 {
			break
		}
		if i.removable() {
			e.remove(i, Pressure)
			left -= max(i.Size, 0)
		}
	}
	e.plan.Shortfall = max(left, 0)
	e.missing = e.missing || left > 0
}

// percent returns part as a percentage of the whole, rounded down.
func percent(part, whole int64) int {
	if part > math.MaxInt64/100 {
		return int(part / (whole / 100))
	}
	return int(part * 100 / whole)
}

// share returns a percentage of the whole, rounded down.
func share(whole int64, percent int) int64 {
	if whole > math.MaxInt64/100 {
		return whole / 100 * int64(percent)
	}
	return whole * int64(percent) / 100
}

// limitNumbers removes what is above KeepLast in each group, and then what is above MaxTotal: first an equal share of each
// group, at least one, and then the oldest of all (P-09).
func (e *evaluation) limitNumbers() {
	if most := e.Rule.KeepLast; most != nil && *most >= 0 {
		for _, group := range e.groups() {
			e.removeOldest(group, len(group)-*most, Excess)
		}
	}
	most := e.Rule.MaxTotal
	if most == nil || *most < 0 {
		return
	}
	groups := e.groups()
	if total(groups) <= *most {
		return
	}
	share := max(*most/len(groups), 1)
	for _, group := range groups {
		e.removeOldest(group, len(group)-share, Surplus)
	}
	if left := total(e.groups()) - *most; left > 0 {
		e.removeOldest(slices.DeleteFunc(slices.Clone(e.items), func(i *item) bool { return !e.counts(i) }), left, Surplus)
	}
}

// counts reports whether a candidate counts for limits of numbers.
func (e *evaluation) counts(i *item) bool {
	if i.removed != "" || i.blocked == IsTerminating {
		return false
	}
	return e.Rule.Counting != CountRemovable || i.Counted || i.removable()
}

// groups returns the candidates that count by their groups, in the order of the oldest of each.
func (e *evaluation) groups() (groups [][]*item) {
	at := map[string]int{}
	for _, i := range e.items {
		if !e.counts(i) {
			continue
		}
		n, ok := at[i.Group]
		if !ok {
			n = len(groups)
			at[i.Group], groups = n, append(groups, nil)
		}
		groups[n] = append(groups[n], i)
	}
	return groups
}

func total(groups [][]*item) (n int) {
	for _, group := range groups {
		n += len(group)
	}
	return n
}

// removeOldest removes the oldest n.
func (e *evaluation) removeOldest(items []*item, n int, why Reason) {
	for _, i := range items {
		if n <= 0 {
			return
		}
		switch {
		case i.removable():
			e.remove(i, why)
			n--
		case i.blocked == "": // it is too young
			e.missing = true
			fallthrough
		default:
			if e.Rule.Counting == CountAll {
				n--
			}
		}
	}
}
