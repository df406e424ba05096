package page

import (
	"cmp"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/operator/cascadelog"
	"github.com/gleaner-dev/gleaner/operator/completion"
	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// RateWindow is the time over which deletions are counted.
const RateWindow = time.Minute

const maxRates = 10 // of each sort

// Rate is how many deletions were made for one cause within RateWindow.
type Rate struct {
	Name      string
	Count     int
	Share     int    // percent of all
	PerSecond string // on average, such as 1.5
}

// Rates are how many deletions were made within RateWindow, by cause.
type Rates struct {
	Deletions, Would               int
	PerSecond                      string // deletions, on average, such as 1.5
	ByOwner, ByPolicy, ByNamespace []Rate
	Since                          *time.Time // when the records begin, if that is within the window
}

// NewRates counts the deletions of records at a time.
func NewRates(entries []record.Entry, since *time.Time, now time.Time) Rates {
	var r Rates
	owners, policies, namespaces := map[string]int{}, map[string]int{}, map[string]int{}
	for _, e := range entries {
		if now.Sub(e.Time) > RateWindow {
			continue
		}
		if len(e.Would()) != 0 {
			r.Would++
		}
		if e.Action != record.Delete || e.Error != "" {
			continue
		}
		r.Deletions++
		owners[ownerOf(e)]++
		policies[cmp.Or(e.Policy, "without a policy")]++
		namespaces[cmp.Or(e.Object.Namespace, "cluster-scoped")]++
	}
	window := RateWindow
	if since != nil && now.Sub(*since) < window {
		r.Since = since
		window = max(now.Sub(*since), time.Second)
	}
	r.PerSecond = perSecond(r.Deletions, window)
	r.ByOwner, r.ByPolicy, r.ByNamespace = ranked(owners, r.Deletions, window), ranked(policies, r.Deletions, window), ranked(namespaces, r.Deletions, window)
	return r
}

// perSecond returns the average of a count within a window, with two significant digits below 10.
func perSecond(count int, window time.Duration) string {
	average := float64(count) / window.Seconds()
	if average >= 10 {
		return strconv.FormatFloat(math.Round(average), 'f', -1, 64)
	}
	return strconv.FormatFloat(average, 'g', 2, 64)
}

// ownerOf returns the root of the cascade that a deletion belongs to.
func ownerOf(e record.Entry) string {
	switch {
	case len(e.Chain) != 0:
		return e.Chain[len(e.Chain)-1].Owner.Object.String()
	case len(e.Owners) != 0:
		return e.Owners[0].Object.String()
	default:
		return "without an owner"
	}
}

func ranked(counts map[string]int, whole int, window time.Duration) []Rate {
	var all []Rate
	for name, n := range counts {
		all = append(all, Rate{name, n, percent(n, whole), perSecond(n, window)})
	}
	slices.SortFunc(all, func(a, b Rate) int { return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.Name, b.Name)) })
	return all[:min(len(all), maxRates)]
}

// Now is the content of the page Now.
type Now struct {
	Replicas  []replicas.Health
	Cascades  []completion.Cascade
	Completed []cascadelog.Completed // the newest first
	Rates     Rates
	Queue     debug.Queue
	Pauses    []PauseState
	Budgets   []Resource
	CanPause  bool

	// Without one of these, its absence means nothing: it could not be read, at least partially.
	CascadesKnown, RatesKnown, PausesKnown bool

	Unread    []string // what could not be read, with the reason
	Installed bool     // the operator was found
	Notice    string   // what the last action did
	Failed    string
}

func (Now) template() string { return "now" }

// PauseState is a pause in force, or one that is not yet.
type PauseState struct {
	Kind, Namespace, Name string
	Text                  string // what it stops, since when and why
	InForce               bool
}

// Leader returns the replica that leads; nil if none does, as far as is known.
func (n Now) Leader() *replicas.Health {
	for i := range n.Replicas {
		if r := &n.Replicas[i]; r.Err == nil && r.Status.Leading {
			return r
		}
	}
	return nil
}

// URL returns the address of the page about the root of a cascade.
func (Now) URL(r completion.Root) string {
	return ObjectURL(record.Object{APIVersion: r.APIVersion, Kind: r.Kind, Namespace: r.Namespace, Name: r.Name, UID: r.UID})
}

// QueuedURL returns the address of the page about a queued object.
func (Now) QueuedURL(o debug.Queued) string { return ObjectURL(o.Object) }

// DecisionsURL returns the address of the decisions in the namespace of a cascade.
func (Now) DecisionsURL(r completion.Root) string {
	v := "owner=" + r.Kind + "%2F" + r.Name
	if r.Namespace != "" {
		v += "&namespace=" + r.Namespace
	}
	return "/decisions?" + v
}
