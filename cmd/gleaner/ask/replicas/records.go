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

// About says which records are asked for. The zero About is all.
type About struct {
	UID                          types.UID
	Group, Kind, Namespace, Name string // with a Name, of objects by that name; Group counts with a Kind
}

// Records is what replicas have recorded.
type Records struct {
	Entries []record.Entry // from old to new

	// Since is how far back the records reach of the replica with the shortest memory;
	// nil if none says so, as none does that does not lead.
	Since *time.Time

	Asked   []string  // the replicas that answered
	Missing []Missing // those that did not
}

// Missing is a replica that could not be asked.
type Missing struct {
	Replica string `json:"replica"`
	Why     string `json:"why"`
}

// RecordsOf asks all replicas, at the same time.
func RecordsOf(ctx context.Context, all []*Replica, about About) Records {
	answers := make([]debug.Records, len(all))
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
			found.Missing = append(found.Missing, Missing{r.Name, errs[i].Error()})
			continue
		}
		found.Asked = append(found.Asked, r.Name)
		if since := answers[i].Since; since != nil && (found.Since == nil || since.After(*found.Since)) {
			found.Since = since
		}
		for _, e := range answers[i].Items {
			if about.matches(e.Object) { // an older operator knows of uid= alone
				found.Entries = append(found.Entries, e)
			}
		}
	}
	slices.SortStableFunc(found.Entries, func(a, b record.Entry) int { return a.Time.Compare(b.Time) })
	return found
}

func (a About) query() string {
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

func (a About) matches(o record.Object) bool {
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

// Health is how a replica says it is doing.
type Health struct {
	Replica  string
	Status   debug.Status
	Unlisted string         // types that it could not list, if there are any
	Ahead    *time.Duration // its clock, before this machine's; nil: it does not say
	Err      error          // it could not be asked
}

// HealthOf asks all replicas how they are doing.
func HealthOf(ctx context.Context, all []*Replica) []Health {
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
		h.Ahead, err = a.ahead, a.into(&h.Status)
	}
	if h.Err = err; err == nil {
		h.Unlisted = r.unlisted(ctx)
	}
	return h
}

// unlisted asks for types that are not listed yet.
func (r *Replica) unlisted(ctx context.Context) string {
	a, err := r.read(ctx, "/debug/gc/synced")
	switch {
	case err != nil:
		return fmt.Sprintf("which types it has listed could not be asked: %v", err)
	case a.code == http.StatusOK:
		return ""
	default:
		return strings.TrimSpace(string(a.body))
	}
}
