package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/whose"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/release"
)

// about is a resource of Gleaner's, and what it has to say.
type about struct {
	name       string
	meta       metav1.ObjectMeta
	conditions []metav1.Condition
	observed   int64 // generation; -1: it does not say
}

// intended are the reasons for which a resource is not enforced as its author wants it.
var intended = []string{"Monitor", "Removed"}

// wants are conditions that have to be true.
func (a about) wants(types ...string) []Finding {
	var found []Finding
	if len(a.conditions) == 0 || a.observed >= 0 && a.observed < a.meta.Generation {
		return []Finding{warning("see that the operator runs, and its log", "%s: the operator has not looked at it yet", a.name)}
	}
	for _, t := range types {
		c := meta.FindStatusCondition(a.conditions, t)
		if c == nil || c.Status == metav1.ConditionTrue || t == v1alpha1.ConditionEnforcing && slices.Contains(intended, c.Reason) {
			continue
		}
		found = append(found, problem("", "%s is not %s: %s: %s", a.name, t, c.Reason, c.Message))
		break // the others follow from it
	}
	return found
}

// governsNothing says why a resource governs nothing of what it names; "" if it does, or if
// that is why it is not enforced.
func (a about) governsNothing() string {
	accepted := meta.FindStatusCondition(a.conditions, v1alpha1.ConditionAccepted)
	enforcing := meta.FindStatusCondition(a.conditions, v1alpha1.ConditionEnforcing)
	if accepted == nil || accepted.Status != metav1.ConditionTrue || accepted.Reason == v1alpha1.ConditionAccepted ||
		enforcing != nil && enforcing.Reason == accepted.Reason {
		return ""
	}
	return accepted.Message
}

func (p *patient) policies(context.Context) []Finding {
	found := p.unread("GCPolicies", "ClusterGCPolicies")
	for _, policy := range p.book.Policies {
		a := about{policy.String(), policy.ObjectMeta, policy.Status.Conditions, policy.Status.ObservedGeneration}
		found = append(found, a.wants(v1alpha1.ConditionAccepted, v1alpha1.ConditionModuleReady, v1alpha1.ConditionEnforcing)...)
		if text := a.governsNothing(); text != "" {
			found = append(found, warning("", "%s: %s", a.name, text))
		}
		if c := meta.FindStatusCondition(a.conditions, v1alpha1.ConditionOverlapping); c != nil && c.Status == metav1.ConditionTrue {
			found = append(found, warning("see docs/policies.md for which one counts, or make them select different objects", "%s overlaps: %s", a.name, c.Message))
		}
	}
	return orOK(found, "%d, all ready", len(p.book.Policies))
}

func (p *patient) modules(context.Context) []Finding {
	found := p.unread("PolicyModules", "ClusterPolicyModules")
	for _, m := range p.book.Modules {
		a := about{m.String(), m.ObjectMeta, m.Status.Conditions, -1}
		found = append(found, a.wants(v1alpha1.ConditionFetched, v1alpha1.ConditionCompiled)...)
	}
	return orOK(found, "%d, all compiled", len(p.book.Modules))
}

func (p *patient) finalizers(context.Context) []Finding {
	found := p.unread("Finalizers", "ClusterFinalizers")
	entries := map[string]string{}
	for _, f := range p.book.Finalizers {
		a := about{f.String(), f.ObjectMeta, f.Status.Conditions, f.Status.ObservedGeneration}
		found = append(found, a.wants(v1alpha1.ConditionAccepted, v1alpha1.ConditionModuleReady, v1alpha1.ConditionEnforcing)...)
		if text := a.governsNothing(); text != "" {
			found = append(found, warning("", "%s: %s", a.name, text))
		}
		if n := f.Status.StuckCount; n > 0 {
			found = append(found, warning("gleaner stuck lists them, with the reasons", "%s: %d of %d objects that wait for it get no further", a.name, n, f.Status.Pending))
		}
		if other, twice := entries[f.Entry]; twice {
			found = append(found, problem("delete one of them", "%s and %s have the same finalizer %s, so neither is served", other, a.name, f.Entry))
		}
		entries[f.Entry] = a.name
	}
	return orOK(found, "%d, all ready, and nothing is stuck", len(p.book.Finalizers))
}

// unread are the kinds of these that could not be read.
func (p *patient) unread(kinds ...string) []Finding {
	var found []Finding
	for _, text := range p.book.Unread {
		if kind, _, _ := strings.Cut(text, ":"); slices.Contains(kinds, kind) {
			found = append(found, unknown("", "can't be read: %s", text))
		}
	}
	return found
}

// shownHolds is how many objects are named that have a hold of nobody's.
const shownHolds = 5

// holds looks for holds that no policy governs: a working operator takes them off
// within minutes.
func (p *patient) holds(ctx context.Context) []Finding {
	if !p.Holds {
		return nil
	}
	held, err := p.held(ctx)
	var found []Finding
	if err != nil {
		found = append(found, unknown("", "not everything could be looked through for holds: %v", err))
	}
	var names []string
	for _, h := range held {
		o := whose.Object{
			Object: &metav1.ObjectMeta{Namespace: h.Namespace, Name: h.Name}, Resource: h.Resource.GroupResource(),
			Kind: h.Resource.GroupVersion().WithKind(h.Kind),
		}
		if governed, unsure := p.book.MayHold(o); !governed && !unsure {
			names = append(names, strings.TrimPrefix(h.Namespace+"/", "/")+h.String())
		}
	}
	if n := len(names); n != 0 {
		if n > shownHolds {
			names = append(names[:shownHolds], fmt.Sprintf("and %d more", n-shownHolds))
		}
		found = append(found, problem("see that the operator runs and may write these; without one: gleaner release --all",
			"%d objects have a hold, and no policy selects them: deleted, they stay: %s", n, strings.Join(names, ", ")))
	}
	return orOK(found, "%d objects have one, and each is governed by a policy", len(held))
}

func (p *patient) held(ctx context.Context) ([]release.Held, error) {
	r := &release.Releaser{}
	var err error
	if r.Metadata, err = metadata.NewForConfig(p.Config); err == nil {
		r.Discovery, err = discovery.NewDiscoveryClientForConfig(p.Config)
	}
	if err != nil {
		return nil, err
	}
	return r.Find(ctx, release.Where{Finalizers: []string{graph.Hold}})
}
