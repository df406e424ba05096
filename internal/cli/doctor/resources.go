package doctor

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/release"
)

// resourceStatus is a Gleaner resource with its status.
type resourceStatus struct {
	name       string
	meta       metav1.ObjectMeta
	conditions []metav1.Condition
	observed   int64 // generation; -1: not in the status
}

// intendedReasons are reasons for which the author intends a resource not to be enforced, or which another check reports.
var intendedReasons = []string{"Monitor", "Removed", "Waiting"}

// requireTrue reports conditions that are not true.
func (a resourceStatus) requireTrue(types ...string) []Finding {
	var found []Finding
	if len(a.conditions) == 0 || a.observed >= 0 && a.observed < a.meta.Generation {
		return []Finding{warning("check that the operator is running, and its log", "%s: not processed by the operator yet", a.name)}
	}
	for _, t := range types {
		c := meta.FindStatusCondition(a.conditions, t)
		if c == nil || c.Status == metav1.ConditionTrue || isEffect(t) && slices.Contains(intendedReasons, c.Reason) {
			continue
		}
		found = append(found, problem("", "%s is not %s: %s: %s", a.name, t, c.Reason, c.Message))
		break // the others follow from it
	}
	return found
}

// isEffect reports whether a condition says that a resource has an effect, which its author may not
// want.
func isEffect(condition string) bool {
	return condition == v1alpha1.ConditionEnforcing || condition == v1alpha1.ConditionArchiving
}

// governsNothing returns why a resource selects nothing; "" if it does select something, or if
// the Enforcing condition already reports it.
func (a resourceStatus) governsNothing() string {
	accepted := meta.FindStatusCondition(a.conditions, v1alpha1.ConditionAccepted)
	enforcing := meta.FindStatusCondition(a.conditions, v1alpha1.ConditionEnforcing)
	if accepted == nil || accepted.Status != metav1.ConditionTrue || accepted.Reason == v1alpha1.ConditionAccepted ||
		enforcing != nil && enforcing.Reason == accepted.Reason {
		return ""
	}
	return accepted.Message
}

func (p *checker) policies(context.Context) []Finding {
	found := p.unread("GCPolicies", "ClusterGCPolicies")
	for _, policy := range p.resources.Policies {
		a := resourceStatus{policy.String(), policy.ObjectMeta, policy.Status.Conditions, policy.Status.ObservedGeneration}
		found = append(found, a.requireTrue(v1alpha1.ConditionAccepted, v1alpha1.ConditionModuleReady, v1alpha1.ConditionEnforcing)...)
		if text := a.governsNothing(); text != "" {
			found = append(found, warning("", "%s: %s", a.name, text))
		}
		if c := meta.FindStatusCondition(a.conditions, v1alpha1.ConditionOverlapping); c != nil && c.Status == metav1.ConditionTrue {
			found = append(found, warning("see docs/policies.md for which one applies, or make them select different objects", "%s overlaps: %s", a.name, c.Message))
		}
	}
	return findingsOrOK(found, "%d, all ready", len(p.resources.Policies))
}

func (p *checker) modules(context.Context) []Finding {
	found := p.unread("PolicyModules", "ClusterPolicyModules")
	for _, m := range p.resources.Modules {
		a := resourceStatus{m.String(), m.ObjectMeta, m.Status.Conditions, -1}
		found = append(found, a.requireTrue(v1alpha1.ConditionFetched, v1alpha1.ConditionCompiled)...)
	}
	return findingsOrOK(found, "%d, all compiled", len(p.resources.Modules))
}

func (p *checker) finalizers(context.Context) []Finding {
	found := p.unread("Finalizers", "ClusterFinalizers")
	entries := map[string]string{}
	for _, f := range p.resources.Finalizers {
		a := resourceStatus{f.String(), f.ObjectMeta, f.Status.Conditions, f.Status.ObservedGeneration}
		found = append(found, a.requireTrue(v1alpha1.ConditionAccepted, v1alpha1.ConditionModuleReady, v1alpha1.ConditionEnforcing)...)
		if text := a.governsNothing(); text != "" {
			found = append(found, warning("", "%s: %s", a.name, text))
		}
		if n := f.Status.Stalled; n > 0 {
			found = append(found, warning("run gleaner stuck for the objects and reasons", "%s: %d of %d pending objects are stuck", a.name, n, f.Status.Pending))
		}
		if other, twice := entries[f.Finalizer]; twice {
			found = append(found, problem("delete one of them", "%s and %s have the same finalizer %s, so neither is active", other, a.name, f.Finalizer))
		}
		entries[f.Finalizer] = a.name
	}
	return findingsOrOK(found, "%d, all ready, and no objects are stuck", len(p.resources.Finalizers))
}

// archives checks archive policies. Without any, there is nothing to say: not every installation has them.
func (p *checker) archives(context.Context) []Finding {
	found := p.unread("ArchivePolicies", "ClusterArchivePolicies")
	for _, archive := range p.resources.Archives {
		a := resourceStatus{archive.String(), archive.ObjectMeta, archive.Status.Conditions, archive.Status.ObservedGeneration}
		found = append(found, a.requireTrue(v1alpha1.ConditionAccepted, v1alpha1.ConditionArchiving)...)
		if n := len(archive.Status.StalledObjects); n > 0 {
			found = append(found, warning("run gleaner stuck for the objects and reasons", "%s: %d objects that are being deleted can't be archived", a.name, n))
		}
		if n := archive.Status.Missed; n > 0 {
			found = append(found, warning("see status.lastFailure", "%s: %d objects were deleted without being archived (onFailure: Continue)", a.name, n))
		}
	}
	if len(found) == 0 && len(p.resources.Archives) == 0 {
		return nil
	}
	return findingsOrOK(found, "%d, all archiving", len(p.resources.Archives))
}

// retentions checks retention policies. Without any, there is nothing to say: not every installation has them.
func (p *checker) retentions(context.Context) []Finding {
	found := p.unread("RetentionPolicies", "ClusterRetentionPolicies")
	for _, r := range p.resources.Retentions {
		a := resourceStatus{r.String(), r.ObjectMeta, r.Status.Conditions, r.Status.ObservedGeneration}
		found = append(found, a.requireTrue(v1alpha1.ConditionAccepted, v1alpha1.ConditionEnforcing)...)
		if text := a.governsNothing(); text != "" {
			found = append(found, warning("", "%s: %s", a.name, text))
		}
		if f := r.Status.LastFailure; f != nil && time.Since(f.Time.Time) < recentFailure {
			found = append(found, warning("run gleaner records --reason RemovedByRetention for the others", "%s: the last failure to remove an object: %s", a.name, f.Message))
		}
	}
	if len(found) == 0 && len(p.resources.Retentions) == 0 {
		return nil
	}
	return findingsOrOK(found, "%d, none failing", len(p.resources.Retentions))
}

// recentFailure is how long a failed removal is reported.
const recentFailure = time.Hour

// unread reports which of the kinds could not be read.
func (p *checker) unread(kinds ...string) []Finding {
	var found []Finding
	for _, text := range p.resources.Unread {
		if kind, _, _ := strings.Cut(text, ":"); slices.Contains(kinds, kind) {
			found = append(found, unknown("", "can't be read: %s", text))
		}
	}
	return found
}

// maxShownHolds is the maximum number of listed objects with an unneeded hold.
const maxShownHolds = 5

// holds checks for holds that no policy governs: a working operator removes them within
// minutes.
func (p *checker) holds(ctx context.Context) []Finding {
	if !p.Holds {
		return nil
	}
	held, err := p.held(ctx)
	var found []Finding
	if err != nil {
		found = append(found, unknown("", "some types could not be searched for holds: %v", err))
	}
	var names []string
	for _, h := range held {
		o := finalizers.Object{
			Object: &metav1.ObjectMeta{Namespace: h.Namespace, Name: h.Name}, Resource: h.Resource.GroupResource(),
			Kind: h.Resource.GroupVersion().WithKind(h.Kind),
		}
		if governed, unsure := p.resources.MayHold(o); !governed && !unsure {
			names = append(names, strings.TrimPrefix(h.Namespace+"/", "/")+h.String())
		}
	}
	if n := len(names); n != 0 {
		if n > maxShownHolds {
			names = append(names[:maxShownHolds], fmt.Sprintf("and %d more", n-maxShownHolds))
		}
		found = append(found, problem("check that the operator is running and is allowed to patch them; without an operator: gleaner release --all",
			"%d objects have a hold but no policy selects them, so they can't be deleted: %s", n, strings.Join(names, ", ")))
	}
	return findingsOrOK(found, "%d objects have a hold, all governed by a policy", len(held))
}

func (p *checker) held(ctx context.Context) ([]release.HeldObject, error) {
	r := &release.Releaser{}
	var err error
	if r.Metadata, err = metadata.NewForConfig(p.Config); err == nil {
		r.Discovery, err = discovery.NewDiscoveryClientForConfig(p.Config)
	}
	if err != nil {
		return nil, err
	}
	return r.Find(ctx, release.Selection{Finalizers: []string{graph.Hold}})
}
