// Package whose tells whose a finalizer is: Gleaner's hold, one that a Finalizer
// or ClusterFinalizer serves, Kubernetes' own, or a stranger's, of whom the
// object's managed fields say who has put it there.
//
// It says what the finalizer waits for, as far as that can be told from what
// was read, and what to do. It reads Gleaner's resources once, and writes nothing.
package whose

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/release"
)

// Kind is what sort of holder somebody is.
type Kind string

// The kinds of holders.
const (
	Hold       Kind = "Hold"       // Gleaner's, for a policy
	Served     Kind = "Served"     // of a Finalizer or ClusterFinalizer
	InUse      Kind = "InUse"      // Gleaner's, on its own resources
	Kubernetes Kind = "Kubernetes" // of a component of Kubernetes
	Stranger   Kind = "Stranger"   // of somebody else
)

// Unnamed is the owner of a stranger's finalizer of whom nothing is known.
const Unnamed = "somebody else"

// Holder is who holds an object by a finalizer.
type Holder struct {
	Finalizer string `json:"finalizer"`
	Kind      Kind   `json:"kind"`
	Owner     string `json:"owner"`           // who takes it off
	Waits     string `json:"waits,omitempty"` // for what
	Do        string `json:"do"`              // about it

	// Of a Finalizer or ClusterFinalizer that tells of this object.
	Reason    string       `json:"reason,omitempty"`  // as in records, events and logs
	Message   string       `json:"message,omitempty"` // what the policy or the module says
	Error     string       `json:"error,omitempty"`   // what went wrong last
	Since     *metav1.Time `json:"since,omitempty"`   // when it got stuck
	NextRetry *metav1.Time `json:"nextRetry,omitempty"`
	RetryDue  bool         `json:"retryDue,omitempty"` // the time of the next retry has come
	Deadline  *metav1.Time `json:"deadline,omitempty"`

	// PlacedBy is the field manager that has put it on the object, and PlacedAt when
	// that one wrote last.
	PlacedBy string       `json:"placedBy,omitempty"`
	PlacedAt *metav1.Time `json:"placedAt,omitempty"`
}

// Object is what holders are asked about.
type Object struct {
	metav1.Object
	Kind     schema.GroupVersionKind
	Resource schema.GroupResource
}

// Of tells who holds an object by one of its finalizers.
func (b *Book) Of(o Object, finalizer string) Holder {
	h := Holder{Finalizer: finalizer}
	h.PlacedBy, h.PlacedAt = placed(o.GetManagedFields(), finalizer)
	switch finalizer {
	case graph.Hold:
		b.hold(&h, o)
	case release.InUse:
		b.inUse(&h, o)
	default:
		if served := b.serving(finalizer); len(served) != 0 {
			b.served(&h, o, served)
		} else if namespace, ok := namespaced(finalizer); ok {
			h.Kind, h.Owner = Served, "the Finalizer "+namespace+"/"+after(finalizer)
			h.Waits, h.Do = "a Finalizer that is not there", b.unserved(finalizer)
		} else if !kubernetes(&h) {
			stranger(&h, o)
		}
	}
	return h
}

// All tells who holds an object.
func (b *Book) All(o Object) []Holder {
	var holders []Holder
	for _, finalizer := range o.GetFinalizers() {
		holders = append(holders, b.Of(o, finalizer))
	}
	return holders
}

// hold is Gleaner's hold: of a policy that decides what becomes of dependents.
func (b *Book) hold(h *Holder, o Object) {
	h.Kind = Hold
	policies, unsure := b.Propagating(o)
	switch {
	case len(policies) == 0 && unsure:
		h.Owner = "Gleaner, for a policy that could not be read"
	case len(policies) == 0:
		h.Owner = "Gleaner, for no policy any more"
		h.Waits = "the operator to take it off: no policy with propagate selects the object"
		h.Do = "see that the operator runs and writes (gleaner doctor); without one: " + releasing(o)
		return
	default:
		h.Owner = "Gleaner, for " + strings.Join(policies, " or ")
	}
	if o.GetDeletionTimestamp() == nil {
		h.Waits, h.Do = "the object to be deleted", "nothing: the policy wants to be asked then"
		return
	}
	h.Waits = "the policy to decide what becomes of the object's dependents, and that to be done"
	h.Do = "gleaner explain shows what the policy says; to let it go undecided: " + releasing(o)
}

func releasing(o Object) string {
	text := "gleaner release " + o.Resource.String() + "/" + o.GetName()
	if o.GetNamespace() != "" {
		text += " -n " + o.GetNamespace()
	}
	return text
}

// inUse is what keeps Gleaner's own resources.
func (b *Book) inUse(h *Holder, o Object) {
	h.Kind, h.Owner = InUse, "Gleaner"
	h.Waits = "the objects that have the finalizer that is served with it"
	name := strings.ToLower(o.Kind.Kind) + "/" + o.GetName()
	if o.GetNamespace() != "" {
		name += " -n " + o.GetNamespace()
	}
	h.Do = "delete those objects, or set onRemoval: Release; to give up on them: gleaner release " + name
	if !strings.HasSuffix(o.Kind.Kind, v1alpha1.KindFinalizer) {
		h.Waits = "the Finalizers and ClusterFinalizers that ask the module"
		h.Do = "delete those first: gleaner stuck lists what they wait for"
	}
}

// after is what follows a finalizer's domain.
func after(finalizer string) string {
	_, name, _ := strings.Cut(finalizer, "/")
	return name
}

// namespaced is the namespace of the Finalizer whose a finalizer is, by its name.
func namespaced(finalizer string) (string, bool) {
	domain, _, _ := strings.Cut(finalizer, "/")
	return strings.CutSuffix(domain, "."+v1alpha1.GroupVersion.Group)
}

// served is a finalizer of a Finalizer or ClusterFinalizer.
func (b *Book) served(h *Holder, o Object, by []Serving) {
	s := by[0]
	h.Kind, h.Owner = Served, s.String()
	if len(by) > 1 {
		h.Owner = s.String() + " and " + by[1].String()
		h.Waits, h.Do = "one of them to go: two have the same finalizer, so neither is served", "delete one of them"
		return
	}
	if o.GetDeletionTimestamp() == nil {
		h.Waits, h.Do = "the object to be deleted", "nothing"
		return
	}
	if d := s.Spec.Deadline; d != nil {
		at := metav1.NewTime(o.GetDeletionTimestamp().Add(d.Duration))
		h.Deadline = &at
	}
	h.Waits, h.Do = "its module to be done", "see its records in gleaner explain, and kubectl describe "+s.resource()
	if c := s.failing(); c != nil {
		h.Reason, h.Error = c.Reason, c.Message
		h.Do = "mend it: " + c.Message
	}
	uid := string(o.GetUID())
	if failed := failedBy(o.GetAnnotations()[release.Notes], uid, h.Finalizer); failed != "" {
		h.Reason, h.Error, h.Do = reasons["Failed"], failed, b.advise("Failed", s, o)
	}
	at := slices.IndexFunc(s.Status.Stuck, func(x v1alpha1.StuckObject) bool { return x.UID == uid })
	if at < 0 {
		return
	}
	stuck := s.Status.Stuck[at]
	h.Reason, h.Error, h.Since = cmp.Or(reasons[stuck.Reason], stuck.Reason), stuck.Message, &stuck.Since
	if stuck.NextRetry != nil {
		h.Retries(stuck.NextRetry.Time, b.At)
	}
	if stuck.Deadline != nil {
		h.Deadline = stuck.Deadline
	}
	h.Do = b.advise(stuck.Reason, s, o) + "; to give up: " + releasing(o) + " --finalizer " + h.Finalizer
}

// reasons are what records, events, logs and metrics call what status has a word for.
var reasons = map[string]string{
	"Failed": "FinalizerFailed", "Fault": "FinalizerAtFault", "DeadlineExceeded": "FinalizerOverdue", "NotReady": "FinalizerNotReady",
	"Blocked": "FinalizerBlocked", "RateLimited": "FinalizerLimited",
	"NotSelected": "FinalizerUnmeant", "Circular": "FinalizerCircular", "Monitor": "FinalizerWatched", "Unreachable": "FinalizerTroubled",
}

// NoAnswer is the reason while what a module asked for is in flight, and not answered.
// Nothing was decided, so records and events have no word for it.
const NoAnswer = "NoAnswer"

// Retries says when an object is tried again, as seen from now; the zero now is before
// everything.
func (h *Holder) Retries(at, now time.Time) {
	h.NextRetry, h.RetryDue = nil, !now.IsZero() && !at.After(now)
	if !h.RetryDue {
		next := metav1.NewTime(at)
		h.NextRetry = &next
	}
}

// advise is advice about one object.
func (b *Book) advise(reason string, s Serving, o Object) string {
	if reason != "Failed" {
		return advice(reason)
	}
	annotate := "kubectl annotate " + o.Resource.String() + " " + o.GetName()
	if o.GetNamespace() != "" {
		annotate += " -n " + o.GetNamespace()
	}
	return fmt.Sprintf("%s: %s retry=$(date +%%s) --overwrite", advice(reason), annotate) + ", or a change of the spec of " + s.String() + " or of its module"
}

// advice is what to do about an object that a finalizer keeps and gets no further
// with, by the reason in status.
func advice(reason string) string {
	switch reason {
	case "Failed":
		return "the module has given up, and is not asked again by itself. See to what it says, then change something, such as the object"
	case "Blocked":
		return "what the module asked for failed: see the error, and to the server or the rights that it names; it is tried again by itself"
	case NoAnswer:
		return "what the module asked for is not answered: see to the server that it names; after a time-out it is tried again by itself"
	case "RateLimited":
		return "the module asks for more writes than there may be in a time, and is asked again by itself; see why it writes so much"
	case "Fault":
		return "the module does not answer as it must: mend it, see docs/records.md for how to ask it again"
	case "DeadlineExceeded":
		return "the deadline is over and onDeadline is Hold: see what it waits for, or set onDeadline: Release"
	case "NotReady":
		return "nobody can be asked: see the conditions of the Finalizer and of its module"
	case "NotSelected":
		return "the Finalizer does not select the object: change that, or take the finalizer off"
	case "Circular":
		return "finalizers wait for each other: take one of them out of after"
	case "Unreachable":
		return "the object could not be read or written: see the error"
	case "Monitor":
		return "its mode is Monitor, in which nothing is done: write mode: Enforce"
	default:
		return "see the message"
	}
}

func (b *Book) unserved(finalizer string) string {
	return fmt.Sprintf("make the Finalizer again, or take %s off: gleaner release --all --finalizer %s", finalizer, finalizer)
}
