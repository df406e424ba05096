package policystatus

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/policyset"
)

// Reasons of conditions that are used in more than one place.
const (
	reasonQuarantined   = "Quarantined"          // the module is not run for now: its worker was killed
	reasonWithheld      = "ObjectWithheld"       // objects may not be read for it
	reasonNotVerified   = "CollectorNotVerified" // no canary has shown that the webhook is called
	reasonNoCollector   = "NoOtherCollector"     // there is no built-in collector in companion mode
	reasonNotServed     = "NotServed"            // it names resources that are not served
	reasonNotNamespaced = "NotNamespaced"        // it is namespaced and names cluster-scoped resources
	reasonSecrets       = "SecretsNotArchived"   // there are no recipients to encrypt them to
)

// maxMessage bounds the message of a condition in bytes: compilers can say a lot.
const maxMessage = 4096

// setter sets a condition of an object.
type setter struct {
	conditions *[]metav1.Condition
	generation int64
}

func setterOf(conditions *[]metav1.Condition, o client.Object) setter {
	return setter{conditions, o.GetGeneration()}
}

func (s setter) set(kind string, is bool, reason, message string) {
	status := metav1.ConditionFalse
	if is {
		status = metav1.ConditionTrue
	}
	s.setStatus(kind, status, reason, message)
}

func (s setter) setStatus(kind string, status metav1.ConditionStatus, reason, message string) {
	if len(message) > maxMessage {
		message = strings.ToValidUTF8(message[:maxMessage], "") + " …"
	}
	meta.SetStatusCondition(s.conditions, metav1.Condition{
		Type: kind, Status: status, ObservedGeneration: s.generation, Reason: reason, Message: message,
	})
}

// conditionsOf returns the conditions of one of Gleaner's resources.
func conditionsOf(o client.Object) *[]metav1.Condition {
	switch o := o.(type) {
	case *v1alpha1.PolicyModule, *v1alpha1.ClusterPolicyModule:
		return &moduleStatus(o).Conditions
	case *v1alpha1.GCPolicy, *v1alpha1.ClusterGCPolicy:
		return &policyStatus(o).Conditions
	case *v1alpha1.ArchivePolicy, *v1alpha1.ClusterArchivePolicy:
		return &archiveStatus(o).Conditions
	case *v1alpha1.RetentionPolicy, *v1alpha1.ClusterRetentionPolicy:
		return &retentionStatus(o).Conditions
	default:
		return &finalizerStatus(o).Conditions
	}
}

func moduleStatus(o client.Object) *v1alpha1.PolicyModuleStatus {
	if m, ok := o.(*v1alpha1.PolicyModule); ok {
		return &m.Status
	}
	return &o.(*v1alpha1.ClusterPolicyModule).Status
}

func policyStatus(o client.Object) *v1alpha1.GCPolicyStatus {
	if p, ok := o.(*v1alpha1.GCPolicy); ok {
		return &p.Status
	}
	return &o.(*v1alpha1.ClusterGCPolicy).Status
}

func finalizerStatus(o client.Object) *v1alpha1.FinalizerStatus {
	if f, ok := o.(*v1alpha1.Finalizer); ok {
		return &f.Status
	}
	return &o.(*v1alpha1.ClusterFinalizer).Status
}

func archiveStatus(o client.Object) *v1alpha1.ArchivePolicyStatus {
	if a, ok := o.(*v1alpha1.ArchivePolicy); ok {
		return &a.Status
	}
	return &o.(*v1alpha1.ClusterArchivePolicy).Status
}

func retentionStatus(o client.Object) *v1alpha1.RetentionPolicyStatus {
	if r, ok := o.(*v1alpha1.RetentionPolicy); ok {
		return &r.Status
	}
	return &o.(*v1alpha1.ClusterRetentionPolicy).Status
}

// describeModule sets the status of a module.
func describeModule(m *policyset.Module, s *v1alpha1.PolicyModuleStatus) {
	s.ObservedGeneration = m.Object.GetGeneration()
	s.Digest, s.Engine, s.ABI, s.Needs, s.Hooks, s.Signers = "", "", "", "", nil, nil
	if c := m.Content; c != nil {
		s.Signers = c.Signers
		s.Digest, s.Engine, s.ABI, s.Needs, s.Hooks = c.Digest, c.Engine, hostabi.Version, v1alpha1.Need(c.Needs), hookNames(c.Hooks)
	}
	to := setterOf(&s.Conditions, m.Object)
	fetched, compiled := m.Problem.IsZero() || m.Problem.Condition == v1alpha1.ConditionCompiled, m.Content != nil
	switch {
	case m.Problem.Condition == v1alpha1.ConditionFetched:
		to.set(v1alpha1.ConditionFetched, false, m.Problem.Reason, m.Problem.Message)
	case m.Pinned:
		to.set(v1alpha1.ConditionFetched, fetched, "Fetched", "its content was fetched, and its source can't have other content later")
	default:
		to.set(v1alpha1.ConditionFetched, fetched, "FetchedUnpinned",
			"its content was fetched, and its source may have other content later, which policies that pin this digest do not evaluate: "+
				"write sha256, or name the image by digest, to reject other content here")
	}
	switch {
	case compiled:
		to.set(v1alpha1.ConditionCompiled, true, "Compiled", "it answers "+strings.Join(hookNames(m.Content.Hooks), ", "))
	case m.Problem.Condition == v1alpha1.ConditionCompiled:
		to.set(v1alpha1.ConditionCompiled, false, m.Problem.Reason, m.Problem.Message)
	case !m.Loading.IsZero():
		to.set(v1alpha1.ConditionCompiled, false, policyset.ReasonLoading, "it is compiled once it is fetched")
	default:
		to.set(v1alpha1.ConditionCompiled, false, "NotFetched", "its content was not fetched")
	}
}

func hookNames(hooks []hostabi.Hook) []string {
	var list []string
	for _, h := range hooks {
		list = append(list, string(h))
	}
	return list
}

// describeReadiness sets whether a policy or finalizer is accepted and its module ready;
// meanwhile says what happens to objects if not.
func (w *Writer) describeReadiness(d *policyset.Declaration, to setter, meanwhile string) {
	accepted, absent := d.Problem.Condition != v1alpha1.ConditionAccepted, w.notGoverned(d)
	switch {
	case !accepted:
		to.set(v1alpha1.ConditionAccepted, false, d.Problem.Reason, d.Problem.Message)
	case !absent.IsZero():
		to.set(v1alpha1.ConditionAccepted, true, absent.Reason, "spec is valid, but "+absent.Message)
	default:
		to.set(v1alpha1.ConditionAccepted, true, "Accepted", "spec is valid")
	}
	quarantined := w.quarantined(d.Policy.String())
	switch {
	case d.Problem.IsZero() && quarantined != "":
		to.set(v1alpha1.ConditionModuleReady, false, reasonQuarantined, quarantined+meanwhile)
	case d.Problem.IsZero():
		to.set(v1alpha1.ConditionModuleReady, true, "Ready", "it answers "+strings.Join(hookNames(d.Policy.Hooks), ", "))
	case accepted:
		to.set(v1alpha1.ConditionModuleReady, false, d.Problem.Reason, d.Problem.Message+meanwhile)
	default:
		to.set(v1alpha1.ConditionModuleReady, false, "NotAccepted", "it is not evaluated"+meanwhile)
	}
}

// notGoverned returns why a policy or finalizer governs nothing of what it names, as far
// as discovery has seen.
func (w *Writer) notGoverned(d *policyset.Declaration) policyset.Problem {
	missing, clusterScoped := w.unserved(d)
	switch {
	case len(missing) != 0:
		return policyset.Problem{Condition: v1alpha1.ConditionEnforcing, Reason: reasonNotServed, Message: fmt.Sprintf("this API server serves no %s: "+
			"write resources in the plural and with their group, as kubectl api-resources shows them, unless the type is still to come", strings.Join(missing, " and no "))}
	case len(clusterScoped) != 0:
		return policyset.Problem{Condition: v1alpha1.ConditionEnforcing, Reason: reasonNotNamespaced, Message: fmt.Sprintf("it is for its own namespace alone, "+
			"and %s are in none: write a Cluster%s for them", strings.Join(clusterScoped, " and "), d.Kind)}
	default:
		return policyset.Problem{}
	}
}

// unserved returns the named resources that are not served, and those that are
// cluster-scoped, if the policy or finalizer is namespaced.
func (w *Writer) unserved(d *policyset.Declaration) (missing, clusterScoped []string) {
	for _, rule := range d.Policy.Rules {
		for _, r := range rule.NamedResources() {
			switch served, namespaced := w.options.Serves(r); {
			case !served:
				missing = append(missing, r.String())
			case d.Key.Namespace != "" && !namespaced:
				clusterScoped = append(clusterScoped, r.String())
			}
		}
	}
	slices.Sort(missing)
	slices.Sort(clusterScoped)
	return slices.Compact(missing), slices.Compact(clusterScoped)
}
