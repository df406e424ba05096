// Package finalizers determines the owner of a finalizer: a hold of Gleaner, a Finalizer or
// ClusterFinalizer, an archive policy, a component of Kubernetes, or another controller,
// identified by the object's managed fields.
//
// It also determines what the finalizer waits for, as far as possible, and what to do. It
// reads Gleaner's resources once, and writes nothing.
package finalizers

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
)

// Kind is the kind of a finalizer's owner.
type Kind string

// The kinds of owners.
const (
	Hold       Kind = "Hold"       // a hold, for a policy
	Served     Kind = "Served"     // a Finalizer or ClusterFinalizer
	Archiving  Kind = "Archive"    // an ArchivePolicy or ClusterArchivePolicy
	InUse      Kind = "InUse"      // Gleaner, on its own resources
	Kubernetes Kind = "Kubernetes" // a component of Kubernetes
	ThirdParty Kind = "ThirdParty" // another controller
)

// UnknownController is the owner of a finalizer of an unknown controller.
const UnknownController = "an unknown controller"

// Finalizer is a finalizer on an object, with its owner.
type Finalizer struct {
	Name     string `json:"finalizer"`
	Kind     Kind   `json:"kind"`
	Owner    string `json:"owner"`           // who removes it
	WaitsFor string `json:"waits,omitempty"` // what it waits for
	Advice   string `json:"do"`              // what to do about it

	// From the status of a Finalizer or ClusterFinalizer, or from records.
	Reason    string       `json:"reason,omitempty"`   // as in records, events and logs
	Message   string       `json:"message,omitempty"`  // of the policy or the module
	Error     string       `json:"error,omitempty"`    // the last error
	Attempts  int          `json:"attempts,omitempty"` // of its module
	Since     *metav1.Time `json:"since,omitempty"`    // when it got stuck
	NextRetry *metav1.Time `json:"nextRetry,omitempty"`
	RetryDue  bool         `json:"retryDue,omitempty"` // the time of the next retry has passed
	Deadline  *metav1.Time `json:"deadline,omitempty"`

	// AddedBy is the field manager that added the finalizer, and AddedAt the time of its last
	// write.
	AddedBy string       `json:"placedBy,omitempty"`
	AddedAt *metav1.Time `json:"placedAt,omitempty"`
}

// Object is an object with finalizers.
type Object struct {
	metav1.Object
	Kind     schema.GroupVersionKind
	Resource schema.GroupResource
}

// Describe returns the owner of one finalizer of an object.
func (b *Resources) Describe(o Object, finalizer string) Finalizer {
	h := Finalizer{Name: finalizer}
	h.AddedBy, h.AddedAt = addedBy(o.GetManagedFields(), finalizer)
	switch finalizer {
	case graph.Hold:
		b.describeHold(&h, o)
	case v1alpha1.InUseFinalizer:
		b.describeInUse(&h, o)
	default:
		if namespace, name, ok := v1alpha1.ParseArchiveFinalizer(finalizer); ok {
			b.describeArchive(&h, o, namespace, name)
		} else if served := b.resourcesFor(finalizer); len(served) != 0 {
			b.describeServed(&h, o, served)
		} else if namespace, ok := namespaceOfFinalizer(finalizer); ok {
			h.Kind, h.Owner = Served, "the Finalizer "+namespace+"/"+nameOfFinalizer(finalizer)
			h.WaitsFor, h.Advice = "a Finalizer that does not exist", b.recreateAdvice(finalizer)
		} else if !describeKubernetes(&h) {
			describeThirdParty(&h, o)
		}
	}
	return h
}

// DescribeAll returns the owners of all finalizers of an object.
func (b *Resources) DescribeAll(o Object) []Finalizer {
	var holders []Finalizer
	for _, finalizer := range o.GetFinalizers() {
		holders = append(holders, b.Describe(o, finalizer))
	}
	return holders
}

// describeHold describes a hold, of policies with propagate.
func (b *Resources) describeHold(h *Finalizer, o Object) {
	h.Kind = Hold
	policies, unsure := b.HoldingPolicies(o)
	switch {
	case len(policies) == 0 && unsure:
		h.Owner = "Gleaner, for a policy that could not be read"
	case len(policies) == 0:
		h.Owner = "Gleaner, without a policy"
		h.WaitsFor = "the operator to remove it, since no policy with propagate selects the object"
		h.Advice = "check that the operator is running (gleaner doctor); without an operator: " + releaseCommand(o)
		return
	default:
		h.Owner = "Gleaner, for " + strings.Join(policies, " or ")
	}
	if o.GetDeletionTimestamp() == nil {
		h.WaitsFor, h.Advice = "the object to be deleted", "nothing: the policy is evaluated on deletion"
		return
	}
	h.WaitsFor = "the policy to decide about the object's dependents, and for this to be carried out"
	h.Advice = "run gleaner explain to see the policy's verdict; to release it without a verdict: " + releaseCommand(o)
}

func releaseCommand(o Object) string {
	text := "gleaner release " + o.Resource.String() + "/" + o.GetName()
	if o.GetNamespace() != "" {
		text += " -n " + o.GetNamespace()
	}
	return text
}

// describeInUse describes the finalizer of Gleaner's own resources.
func (b *Resources) describeInUse(h *Finalizer, o Object) {
	h.Kind, h.Owner = InUse, "Gleaner"
	h.WaitsFor = "the objects that have its finalizer"
	name := strings.ToLower(o.Kind.Kind) + "/" + o.GetName()
	if o.GetNamespace() != "" {
		name += " -n " + o.GetNamespace()
	}
	h.Advice = "delete those objects, or set onRemoval: Release; to skip their cleanup: gleaner release " + name
	if strings.HasSuffix(o.Kind.Kind, v1alpha1.KindArchivePolicy) {
		h.WaitsFor = "the objects that are being deleted and are not archived yet"
		h.Advice = "see its status for why; to let them be deleted without being archived: gleaner release " + name
		return
	}
	if !strings.HasSuffix(o.Kind.Kind, v1alpha1.KindFinalizer) {
		h.WaitsFor = "the Finalizers and ClusterFinalizers that use the module"
		h.Advice = "delete those first; run gleaner stuck to see what they wait for"
	}
}

// describeArchive describes the finalizer of an archive policy.
func (b *Resources) describeArchive(h *Finalizer, o Object, namespace, name string) {
	h.Kind = Archiving
	at := slices.IndexFunc(b.Archives, func(a Archive) bool { return a.Namespace == namespace && a.Name == name })
	release := releaseCommand(o) + " --finalizer " + h.Name
	if at < 0 {
		kind := map[bool]string{true: v1alpha1.KindClusterArchivePolicy, false: v1alpha1.KindArchivePolicy}[namespace == ""]
		h.Owner = "the " + nameOf(kind, metav1.ObjectMeta{Namespace: namespace, Name: name})
		h.WaitsFor, h.Advice = "an archive policy that does not exist, or could not be read", "create it again, or remove the finalizer: "+release
		return
	}
	a := b.Archives[at]
	h.Owner = a.String()
	if o.GetDeletionTimestamp() == nil {
		h.WaitsFor, h.Advice = "the object to be deleted", "nothing: it is archived on deletion"
		return
	}
	h.WaitsFor, h.Advice = "the object to be archived", "to let it be deleted without being archived: "+release
	if c := meta.FindStatusCondition(a.Status.Conditions, v1alpha1.ConditionArchiving); c != nil && c.Status == metav1.ConditionFalse {
		h.Reason, h.Error = c.Reason, c.Message
	}
	uid := string(o.GetUID())
	if i := slices.IndexFunc(a.Status.StalledObjects, func(x v1alpha1.StalledObject) bool { return x.UID == uid }); i >= 0 {
		stuck := a.Status.StalledObjects[i]
		h.Reason, h.Error, h.Since = cmp.Or(reasons[stuck.Reason], stuck.Reason), stuck.Message, &stuck.SinceTime
		if stuck.NextRetryTime != nil {
			h.SetRetry(stuck.NextRetryTime.Time, b.ReadAt)
		}
	}
}

// nameOfFinalizer returns the part of a finalizer after its domain.
func nameOfFinalizer(finalizer string) string {
	_, name, _ := strings.Cut(finalizer, "/")
	return name
}

// namespaceOfFinalizer returns the namespace of the Finalizer to which a finalizer belongs, by its name.
func namespaceOfFinalizer(finalizer string) (string, bool) {
	domain, _, _ := strings.Cut(finalizer, "/")
	return strings.CutSuffix(domain, "."+v1alpha1.GroupVersion.Group)
}

// describeServed describes the finalizer of a Finalizer or ClusterFinalizer.
func (b *Resources) describeServed(h *Finalizer, o Object, by []FinalizerResource) {
	s := by[0]
	h.Kind, h.Owner = Served, s.String()
	if len(by) > 1 {
		h.Owner = s.String() + " and " + by[1].String()
		h.WaitsFor, h.Advice = "one of them to be deleted: they have the same finalizer, so neither is active", "delete one of them"
		return
	}
	if o.GetDeletionTimestamp() == nil {
		h.WaitsFor, h.Advice = "the object to be deleted", "nothing"
		return
	}
	if d := s.Spec.Deadline; d != nil {
		at := metav1.NewTime(o.GetDeletionTimestamp().Add(d.Duration))
		h.Deadline = &at
	}
	h.WaitsFor, h.Advice = "its module to finish", "see the records in gleaner explain, and kubectl describe "+s.kubectlArgs()
	if c := s.failedCondition(); c != nil {
		h.Reason, h.Error = c.Reason, c.Message
		h.Advice = "fix it: " + c.Message
	}
	uid := string(o.GetUID())
	if failed := objectstate.FinalizerFailure(o, h.Name); failed != "" {
		h.Reason, h.Error, h.Advice = reasons["Failed"], failed, b.adviceFor("Failed", s, o)
	}
	at := slices.IndexFunc(s.Status.StalledObjects, func(x v1alpha1.StalledObject) bool { return x.UID == uid })
	if at < 0 {
		return
	}
	stuck := s.Status.StalledObjects[at]
	h.Reason, h.Error, h.Since = cmp.Or(reasons[stuck.Reason], stuck.Reason), stuck.Message, &stuck.SinceTime
	if stuck.NextRetryTime != nil {
		h.SetRetry(stuck.NextRetryTime.Time, b.ReadAt)
	}
	h.Attempts = int(stuck.Attempts)
	if stuck.DeadlineTime != nil {
		h.Deadline = stuck.DeadlineTime
	}
	h.Advice = b.adviceFor(stuck.Reason, s, o) + "; to skip its cleanup: " + releaseCommand(o) + " --finalizer " + h.Name
}

// reasons are the reasons in records, events, logs and metrics, by the reason in status.
var reasons = map[string]string{
	"Failed": "FinalizerFailed", "Fault": "FinalizerFault", "DeadlineExceeded": "FinalizerDeadlineExceeded", "NotReady": "FinalizerNotReady",
	"Blocked": "FinalizerBlocked", "RateLimited": "FinalizerRateLimited",
	"NotSelected": "FinalizerNotSelected", "Circular": "FinalizerCircular", "Monitor": "FinalizerMonitored", "Error": "FinalizerError",
}

// NoAnswer is the reason while an intent of a module is in flight. Nothing was decided, so
// there is no reason in records and events.
const NoAnswer = "NoResponse"

// SetRetry sets the time of the next retry. The zero now is before all times.
func (h *Finalizer) SetRetry(at, now time.Time) {
	h.NextRetry, h.RetryDue = nil, !now.IsZero() && !at.After(now)
	if !h.RetryDue {
		next := metav1.NewTime(at)
		h.NextRetry = &next
	}
}

// adviceFor returns what to do about one object.
func (b *Resources) adviceFor(reason string, s FinalizerResource, o Object) string {
	if reason != "Failed" {
		return advice(reason)
	}
	annotate := "kubectl annotate " + o.Resource.String() + " " + o.GetName()
	if o.GetNamespace() != "" {
		annotate += " -n " + o.GetNamespace()
	}
	return fmt.Sprintf("%s: %s retry=$(date +%%s) --overwrite", advice(reason), annotate) + ", or change the spec of " + s.String() + " or its module"
}

// advice returns what to do about an object on which a finalizer is stuck, by the reason in
// status.
func advice(reason string) string {
	switch reason {
	case "Failed":
		return "the module failed, and is not retried automatically. Fix the cause in its message, then change the object, for example"
	case "Blocked":
		return "an intent of the module failed: fix the server or the permissions in the error; it is retried automatically"
	case NoAnswer:
		return "an intent of the module has no response yet: check the server in the message; it is retried automatically after a timeout"
	case "RateLimited":
		return "the module exceeds the rate limit for writes, and is retried automatically; check why it writes so much"
	case "Fault":
		return "the module returns no valid verdict: fix it; docs/records.md describes how to replay it"
	case "DeadlineExceeded":
		return "the deadline has passed and onDeadline is Hold: see what it waits for, or set onDeadline: Release"
	case "NotReady":
		return "the module is not ready: see the conditions of the Finalizer and its module"
	case "NotSelected":
		return "the Finalizer does not select the object: change its rules, or remove the finalizer"
	case "Circular":
		return "finalizers wait for each other: remove one of them from after"
	case "Error":
		return "the object could not be read or written: see the error"
	case "Monitor":
		return "its mode is Monitor, which has no effect: set mode: Enforce"
	default:
		return "see the message"
	}
}

func (b *Resources) recreateAdvice(finalizer string) string {
	return fmt.Sprintf("create the Finalizer again, or remove %s: gleaner release --all --finalizer %s", finalizer, finalizer)
}
