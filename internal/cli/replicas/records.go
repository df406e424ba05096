package replicas

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// Filter selects records. The zero value selects all.
type Filter struct {
	UID                          types.UID
	Group, Kind, Namespace, Name string // selects by name if Name is set; Group applies only with a Kind
}

// Records are the records of all replicas.
type Records struct {
	Entries []record.Entry // from old to new

	// Since is when the records begin, of the replica whose records begin last; nil if no
	// leading replica could be queried.
	Since *time.Time

	Queried     []string      // replicas that were queried
	Unreachable []Unreachable // replicas that could not be queried
}

// Unreachable is a replica that could not be queried.
type Unreachable struct {
	Replica string `json:"replica"`
	Reason  string `json:"why"`
}

// QueryRecords queries the records of all replicas concurrently.
func QueryRecords(ctx context.Context, all []*Replica, about Filter) Records {
	answers := make([]debug.RecordList, len(all))
	errs := make([]error, len(all))
	var group errgroup.Group
	for i, r := range all {
		group.Go(func() error {
			errs[i] = r.Get(ctx, "/debug/gc/records"+about.query(), &answers[i])
			return nil
		})
	}
	_ = group.Wait() // each has its own error
	var found Records
	for i, r := range all {
		if errs[i] != nil {
			found.Unreachable = append(found.Unreachable, Unreachable{r.Name, errs[i].Error()})
			continue
		}
		found.Queried = append(found.Queried, r.Name)
		if since := answers[i].Since; since != nil && (found.Since == nil || since.After(*found.Since)) {
			found.Since = since
		}
		for _, e := range answers[i].Items {
			if about.matches(e.Object) { // older operators support only uid=
				found.Entries = append(found.Entries, e)
			}
		}
	}
	slices.SortStableFunc(found.Entries, func(a, b record.Entry) int { return a.Time.Compare(b.Time) })
	return found
}

func (a Filter) query() string {
	q := url.Values{}
	for name, value := range map[string]string{"uid": string(a.UID), "kind": a.Kind, "namespace": a.Namespace, "name": a.Name} {
		if value != "" {
			q.Set(name, value)
		}
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

func (a Filter) matches(o record.Object) bool {
	if a.UID != "" {
		return o.UID == a.UID
	}
	return a.Name == "" || cmp.Or(a.Kind, o.Kind) == o.Kind && a.Namespace == o.Namespace && a.Name == o.Name &&
		(a.Kind == "" || a.Group == groupOf(o.APIVersion))
}

func groupOf(apiVersion string) string {
	if group, _, ok := strings.Cut(apiVersion, "/"); ok {
		return group
	}
	return ""
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
