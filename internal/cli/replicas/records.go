package replicas

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// maxRecords is the maximum number of records that are kept of a replica, the newest ones.
const maxRecords = 100_000

// Selection selects records. The zero value selects all.
type Selection struct {
	record.Query
	Since, Before time.Time // zero: no limit
	Exchanges     bool      // with the requests and verdicts of modules

	// Limit is the maximum number of records: the newest ones. 0 is maxRecords.
	Limit int

	// InMemory selects only those that a replica has in memory.
	InMemory bool
}

// Records are the records of all replicas.
type Records struct {
	Entries []record.Entry // from old to new

	// Since is when the records begin, of the replica whose records begin last; nil if no
	// leading replica could be queried.
	Since *time.Time

	// Older is set if there are older records, above the limit.
	Older bool

	Queried     []string      // replicas that were queried
	Unreachable []Unreachable // replicas that could not be queried, or not completely
}

// Unreachable is a replica that could not be queried.
type Unreachable struct {
	Replica string `json:"replica"`
	Reason  string `json:"why"`
}

// QueryRecords queries the records of all replicas concurrently.
func QueryRecords(ctx context.Context, all []*Replica, s Selection) Records {
	answers := make([]answer, len(all))
	var group errgroup.Group
	for i, r := range all {
		group.Go(func() error {
			answers[i] = r.records(ctx, s)
			return nil
		})
	}
	_ = group.Wait() // each has its own error
	return combine(all, answers, s)
}

// combine merges the answers of replicas, which may have the same stored records.
func combine(all []*Replica, answers []answer, s Selection) Records {
	var found Records
	leads := slices.ContainsFunc(answers, func(a answer) bool { return a.err == nil && a.since != nil })
	newest := Newest{Limit: s.Limit}
	var entries []record.Entry
	for i, r := range all {
		a := answers[i]
		if a.err != nil {
			found.Unreachable = append(found.Unreachable, Unreachable{r.Name, a.err.Error()})
			continue
		}
		found.Queried = append(found.Queried, r.Name)
		if a.incomplete != "" && (a.since != nil || !leads) { // the others can't read a store that the leader writes
			found.Unreachable = append(found.Unreachable, Unreachable{r.Name, a.incomplete})
		}
		if a.since != nil && (found.Since == nil || a.since.After(*found.Since)) {
			found.Since = a.since
		}
		found.Older = found.Older || a.older
		entries = append(entries, a.entries...)
	}
	slices.SortStableFunc(entries, func(a, b record.Entry) int { return a.Time.Compare(b.Time) })
	known := make(map[string]struct{}, len(entries))
	for _, e := range entries {
		if _, is := known[e.Key()]; !is {
			known[e.Key()] = struct{}{}
			newest.Add(e)
		}
	}
	found.Entries, found.Older = newest.Entries(), found.Older || newest.Older
	return found
}

// answer is what a replica answered.
type answer struct {
	entries    []record.Entry
	older      bool
	since      *time.Time
	incomplete string
	err        error
}

// records reads the records of a replica, page by page.
func (r *Replica) records(ctx context.Context, s Selection) (a answer) {
	newest := Newest{Limit: s.Limit}
	v := s.values()
	for {
		var page debug.RecordList
		reply, err := r.read(ctx, "/debug/gc/records?"+v.Encode())
		if err == nil {
			err = reply.decode(&page)
		}
		if a.err = err; err != nil {
			return a
		}
		for _, e := range page.Items {
			if s.matches(e) { // older operators support only uid=, name=, kind= and namespace=
				newest.Add(e)
			}
		}
		if a.since == nil || page.Since != nil && page.Since.Before(*a.since) {
			a.since = page.Since
		}
		a.incomplete = cmp.Or(a.incomplete, page.Incomplete, strings.TrimPrefix(reply.warning, "299 gleaner "))
		next := page.Continue
		if next == nil {
			a.entries, a.older = newest.Entries(), newest.Older
			return a
		}
		since := next.UTC().Format(time.RFC3339Nano)
		if s.InMemory || since == v.Get("since") {
			a.err = fmt.Errorf("read records: the page after %s is that page again", since)
			return a
		}
		v.Set("since", since)
	}
}

// values returns the parameters of the request for the first page.
func (s Selection) values() url.Values {
	v := debug.Values(s.Query, s.Since, s.Before)
	if s.InMemory {
		v.Del("since")
		if s.Limit > 0 {
			v.Set("limit", strconv.Itoa(s.Limit))
		}
	}
	if s.Exchanges {
		v.Set("exchanges", "true")
	}
	return v
}

func (s Selection) matches(e record.Entry) bool {
	return s.Matches(e) && !e.Time.Before(s.Since) && (s.Before.IsZero() || e.Time.Before(s.Before))
}

// Newest collects the newest entries of those that are added from old to new. Its zero value keeps
// maxRecords.
type Newest struct {
	Limit int
	Older bool // older ones were dropped

	entries []record.Entry // a ring once it is full; next is the oldest
	next    int
}

// Add adds an entry.
func (n *Newest) Add(e record.Entry) {
	if limit := cmp.Or(n.Limit, maxRecords); len(n.entries) < limit {
		n.entries = append(n.entries, e)
		return
	}
	n.entries[n.next] = e
	n.next, n.Older = (n.next+1)%len(n.entries), true
}

// Entries returns the entries, from old to new.
func (n *Newest) Entries() []record.Entry {
	return append(slices.Clone(n.entries[n.next:]), n.entries[:n.next]...)
}

// Health is the status of a replica.
type Health struct {
	Replica    string
	Status     debug.Status
	Unlisted   string         // types that it could not list, if any
	ClockAhead *time.Duration // how far its clock is ahead of this machine's; nil: unknown
	Err        error          // why it could not be queried
}

// QueryHealth queries the health of all replicas concurrently.
func QueryHealth(ctx context.Context, all []*Replica) []Health {
	list := make([]Health, len(all))
	var group errgroup.Group
	for i, r := range all {
		group.Go(func() error {
			list[i] = r.health(ctx)
			return nil
		})
	}
	_ = group.Wait() // each has its own error
	return list
}

func (r *Replica) health(ctx context.Context) Health {
	h := Health{Replica: r.Name}
	a, err := r.read(ctx, "/debug/gc/status")
	if err == nil {
		h.ClockAhead, err = a.clockAhead, a.decode(&h.Status)
	}
	if h.Err = err; err == nil {
		h.Unlisted = r.unlisted(ctx)
	}
	return h
}

// unlisted returns the types that are not listed yet.
func (r *Replica) unlisted(ctx context.Context) string {
	a, err := r.read(ctx, "/debug/gc/synced")
	switch {
	case err != nil:
		return fmt.Sprintf("the listed types could not be queried: %v", err)
	case a.code == http.StatusOK:
		return ""
	default:
		return strings.TrimSpace(string(a.body))
	}
}
