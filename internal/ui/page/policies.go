package page

import (
	"cmp"
	"net/url"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// Resource is a policy, a finalizer, or another of Gleaner's resources.
type Resource struct {
	Kind, Namespace, Name string
	Mode                  string   // Monitor or Enforce; empty: it has none
	Governs               []string // which resources it selects
	Objects               string   // how many objects it selects, if they were counted
	Created               time.Time
	Facts                 []Fact // from its spec and status
	Conditions            []metav1.Condition
	Next                  []string // what it removes next, a line each
	Deleting              bool
}

// Fact is a fact about a resource.
type Fact struct{ Name, Value string }

// Policies is the content of the page Policies.
type Policies struct {
	Groups    []PolicyGroup
	Installed bool // Gleaner's types are served
	Counted   bool // the objects that they select were counted
	Unread    []string
	Failed    string // why there is nothing to show
}

func (Policies) template() string { return "policies" }

// PolicyGroup is all resources of one sort.
type PolicyGroup struct {
	Name, Empty string
	Resources   []Resource
}

// NewPolicies returns the content, with resources that don't work first.
func NewPolicies(groups []PolicyGroup, installed bool, unread []string) Policies {
	for _, g := range groups {
		slices.SortStableFunc(g.Resources, func(a, b Resource) int {
			return cmp.Or(a.Health().rank()-b.Health().rank(), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
		})
	}
	return Policies{Groups: groups, Installed: installed, Unread: unread}
}

// Health is whether a resource works, according to its conditions.
type Health string

// The healths of resources.
const (
	Failing Health = "failing"
	Unsure  Health = "unknown"
	Waiting Health = "waiting"
	Working Health = "working"
	Plain   Health = "" // it has no conditions
)

func (h Health) rank() int {
	return slices.Index([]Health{Failing, Unsure, Waiting, Working, Plain}, h)
}

// attention are the conditions whose status True needs attention, and passive those whose status False is no failure: the mode
// is Monitor, or a condition of another type says what is wrong.
var (
	attention = map[string]bool{v1alpha1.ConditionExhausted: true, v1alpha1.ConditionOverlapping: true}
	passive   = map[string]bool{v1alpha1.ConditionEnforcing: true, v1alpha1.ConditionArchiving: true, v1alpha1.ConditionInForce: true}
)

// Health returns whether the resource works.
func (r Resource) Health() Health {
	worst := Plain
	for _, c := range r.Conditions {
		h := HealthOf(c)
		if h.rank() < worst.rank() {
			worst = h
		}
	}
	return worst
}

// HealthOf returns what a condition says.
func HealthOf(c metav1.Condition) Health {
	is := c.Status == metav1.ConditionTrue
	switch {
	case c.Status != metav1.ConditionTrue && c.Status != metav1.ConditionFalse:
		return Unsure
	case attention[c.Type]:
		if is {
			return Waiting
		}
		return Working
	case is:
		return Working
	case passive[c.Type] && c.Reason == string(v1alpha1.ModeMonitor):
		return Working
	case passive[c.Type]:
		return Waiting
	default:
		return Failing
	}
}

// DecisionsURL returns the address of the decisions for which the resource was evaluated.
func (r Resource) DecisionsURL() string {
	name := r.Name
	if r.Namespace != "" {
		name = r.Namespace + "/" + name
	}
	return "/decisions?" + url.Values{"policy": {r.Kind + " " + name}}.Encode()
}
