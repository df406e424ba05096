package recorder

import (
	corev1 "k8s.io/api/core/v1"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/finalizers"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// announces reports whether an entry is logged and may raise an event. A decision that
// writes nothing but state can be made over and over, each time for another reason.
func (r *Recorder) announces(e record.Entry) bool {
	if e.Policy == "" || e.Action != record.None && e.Action != record.SaveState {
		return true
	}
	if r.options.Limiter.Take(e.Policy, e.Object.Namespace, 1, e.Time) == 0 {
		return true
	}
	r.CountLimited(e.Policy, "log")
	return false
}

func (r *Recorder) log(e record.Entry) {
	keys := []any{
		"object", e.Object.String(), "uid", e.Object.UID, "apiVersion", e.Object.APIVersion,
		"action", e.Action, "reason", e.Reason, "result", e.Result, "why", e.String(),
	}
	if e.Detail != "" {
		keys = append(keys, "how", e.Detail)
	}
	if e.Error != "" {
		keys = append(keys, "error", e.Error)
	}
	r.options.Log.Info("Decided", keys...)
}

// eventTypes are the types of the events that decisions raise, most of them of policies. A
// plain delete raises none, since the object is gone, unless only a policy asked for it.
var eventTypes = map[decide.Reason]string{
	decide.KeptByPolicy:       corev1.EventTypeNormal,
	decide.DelayedByPolicy:    corev1.EventTypeNormal,
	decide.PolicyWaiting:      corev1.EventTypeNormal,
	decide.PropagationDecided: corev1.EventTypeNormal,
	decide.OverriddenByPolicy: corev1.EventTypeNormal,
	decide.RemovedByRetention: corev1.EventTypeNormal,
	decide.DependentsInOrder:  corev1.EventTypeNormal,
	decide.ObserveTimedOut:    corev1.EventTypeWarning,
	decide.TooManyOwners:      corev1.EventTypeWarning,
	decide.PolicyFault:        corev1.EventTypeWarning,
	decide.PolicyRateLimited:  corev1.EventTypeWarning,
}

// finalizerEventTypes are those of decisions on finalizers. That a module is done raises
// none: the object is gone.
var finalizerEventTypes = map[finalizers.Reason]string{
	finalizers.Waiting:          corev1.EventTypeNormal,
	finalizers.Blocked:          corev1.EventTypeWarning,
	finalizers.Released:         corev1.EventTypeWarning,
	finalizers.Failed:           corev1.EventTypeWarning,
	finalizers.Fault:            corev1.EventTypeWarning,
	finalizers.DeadlineExceeded: corev1.EventTypeWarning,
	finalizers.NotReady:         corev1.EventTypeWarning,
	finalizers.NotSelected:      corev1.EventTypeWarning,
	finalizers.Monitored:        corev1.EventTypeNormal,
	finalizers.Circular:         corev1.EventTypeWarning,
	finalizers.HostError:        corev1.EventTypeWarning,
	finalizers.RateLimited:      corev1.EventTypeWarning,
}

func (r *Recorder) raiseEvent(o graph.Object, e record.Entry) {
	kind, ok := eventTypes[e.Reason]
	saved := e.Reason == decide.PropagationDecided && e.Action == record.SaveState // carrying it out follows at once
	if !ok || saved || r.options.Events == nil || e.Result != "" && e.Result != string(act.Done) {
		return
	}
	r.options.Events.Eventf(referenceTo(o), kind, string(e.Reason), "%s", e.String())
}

func (r *Recorder) raiseFinalizerEvent(o finalizers.Outcome, e record.Entry) {
	if kind, ok := finalizerEventTypes[o.Reason]; ok && r.options.Events != nil {
		r.options.Events.Eventf(referenceTo(o.Object), kind, string(o.Reason), "%s", e.String())
	}
}

// maxWarnings bounds the events about references of one object.
const maxWarnings = 3

// warn raises events about references into another namespace, on the object that has them
// (G-33), with the reason and the source that the built-in collector uses.
func (r *Recorder) warn(facts decide.Facts, plan decide.Plan) {
	if r.options.BuiltinEvents == nil {
		return
	}
	o := facts.Object
	for _, owner := range plan.WrongNamespaceOwners[:min(len(plan.WrongNamespaceOwners), maxWarnings)] {
		ref := owner.Reference
		r.options.BuiltinEvents.Eventf(referenceTo(o), corev1.EventTypeWarning, "OwnerRefInvalidNamespace",
			"ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
			ref.APIVersion, ref.Kind, o.Namespace, ref.Name, ref.UID, o.Namespace)
	}
}

func referenceTo(o graph.Object) *corev1.ObjectReference {
	apiVersion, kind := o.Kind.ToAPIVersionAndKind()
	return &corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}
