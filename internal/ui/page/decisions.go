package page

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// DecisionQuery is what a person selected on the page Decisions. Its zero value selects the newest decisions.
type DecisionQuery struct {
	Namespace string
	Object    string // Kind/name, or just a name
	Owner     string // the same of an owner
	Policy    string // such as "GCPolicy shop/keep", or just its name
	Reason    string
	Would     bool          // only those about which a policy in Monitor mode would have decided something else
	Within    time.Duration // 0: any time
}

// ParseDecisionQuery reads the query of the page's URL. What it can't read selects everything.
func ParseDecisionQuery(v url.Values) DecisionQuery {
	within, err := time.ParseDuration(v.Get("within"))
	if err != nil {
		within = 0
	}
	get := func(name string) string { return strings.TrimSpace(v.Get(name)) }
	return DecisionQuery{
		Namespace: get("namespace"), Object: get("object"), Owner: get("owner"), Policy: get("policy"), Reason: get("reason"), Would: v.Get("would") == "yes",
		Within: max(within, 0),
	}
}

// Selection returns the records that are selected at a time.
func (q DecisionQuery) Selection(now time.Time) replicas.Selection {
	s := replicas.Selection{Limit: MaxRecords, Query: record.Query{
		Object: objectQuery(q.Object), Owner: objectQuery(q.Owner), Policy: q.Policy, Reason: q.Reason, Would: q.Would,
	}}
	if q.Namespace != "" {
		s.Object.Namespace = &q.Namespace
	}
	if q.Within > 0 {
		s.Since = now.Add(-q.Within)
	}
	return s
}

func objectQuery(text string) record.ObjectQuery {
	if kind, name, ok := strings.Cut(text, "/"); ok {
		kind, _, _ = strings.Cut(kind, ".")
		return record.ObjectQuery{Kind: kind, Name: name}
	}
	return record.ObjectQuery{Name: text}
}

// Decisions is the content of the page Decisions.
type Decisions struct {
	Query DecisionQuery
	replicas.Records
	Failed string // why there is nothing to show
}

func (Decisions) template() string { return "decisions" }

// List returns the decisions, the newest first.
func (d Decisions) List() []Decision { return decisionsOf(d.Entries) }

// Periods are offered for how long ago decisions were made.
func (Decisions) Periods() []string { return []string{"5m", "1h", "24h", "168h"} }

// Selected reports whether a period is the selected one.
func (q DecisionQuery) Selected(period string) bool {
	d, err := time.ParseDuration(period)
	return err == nil && d == q.Within
}

// Reasons returns the reasons of the decisions that are shown, to select from.
func (d Decisions) Reasons() (all []string) {
	for _, e := range d.Entries {
		if !slices.Contains(all, string(e.Reason)) {
			all = append(all, string(e.Reason))
		}
	}
	slices.Sort(all)
	return all
}
