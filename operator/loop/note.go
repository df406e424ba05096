package loop

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// outcome is what became of a plan.
type outcome struct {
	result act.Result
	err    error
	took   time.Duration
}

// note tells what was decided and what became of it: as a record, a log line,
// metrics, and an event where the object's owner has to know.
func (l *Loop) note(facts decide.Facts, plan decide.Plan, opinion consult.Opinion, out outcome) {
	if plan.Reason == decide.NothingToDo || plan.Confirm {
		return // nothing is decided, or not yet
	}
	action, how := record.ActionOf(plan.Action)
	entry := record.Entry{
		Time:     l.now(),
		Object:   record.ObjectOf(facts.Object),
		Reason:   plan.Reason,
		Action:   action,
		How:      how,
		Owners:   record.OwnersOf(facts),
		Because:  facts.Unconfirmed,
		Duration: out.took,
	}
	entry.OwnersOmitted = len(facts.Owners) - len(entry.Owners)
	if plan.Reason == decide.TooManyOwners { // which of them have been read by now is no news
		entry.Owners, entry.OwnersOmitted, entry.Because = nil, len(facts.Owners), tooMany(facts)
	}
	if action != record.None {
		entry.Result = string(out.result)
	}
	if out.err != nil {
		entry.Result, entry.Error = "Failed", out.err.Error()
	}
	if plan.Reason == decide.DependentsRemain {
		entry.WaitsFor, entry.Blocking = record.BlockersOf(facts), facts.Blocking
	}
	entry.Policy, entry.Asked = l.by(opinion), askedOf(opinion)
	if f := opinion.Fault; f != nil && plan.Reason == decide.PolicyAtFault && len(entry.Asked) == 0 {
		entry.Because = f.Error() // no policy was asked that would say so
	}
	if plan.After > 0 {
		until := entry.Time.Add(plan.After)
		entry.Until = &until
	}
	l.count(entry)
	l.metrics.tally(entry, facts.Object)
	if out.result == act.Done && action == record.Delete {
		l.metrics.observeDelay(facts, entry.Time)
	}
	if l.noted != nil {
		l.noted(entry)
	}
	entry, isNew := l.records.Add(entry)
	if isNew { // and not the same as at the last look
		l.warn(facts, plan)
	}
	if isNew && l.tells(entry) {
		l.logEntry(entry)
		l.announce(facts, entry)
	}
}

// tooMany says that an object has more owners than are read at once.
func tooMany(facts decide.Facts) string {
	if facts.Object.Truncated {
		return fmt.Sprintf("it has more than %d owner references, and is kept until it has fewer", graph.MaxOwners)
	}
	return fmt.Sprintf("it has %d owner references, which are read little by little", len(facts.Object.Owners))
}

// noteRefusal tells that the other collector was kept from an object although nothing
// is decided about it yet.
func (l *Loop) noteRefusal(o graph.Object, why string) {
	entry := record.Entry{
		Time: l.now(), Object: record.ObjectOf(o), Reason: decide.RefusedForNow, Action: record.None, Because: why,
	}
	l.metrics.tally(entry, o)
	if entry, isNew := l.records.Add(entry); isNew {
		l.logEntry(entry)
	}
}

func (l *Loop) logEntry(e record.Entry) {
	keys := []any{
		"object", e.Object.String(), "uid", e.Object.UID, "apiVersion", e.Object.APIVersion,
		"action", e.Action, "reason", e.Reason, "result", e.Result, "why", e.String(),
	}
	if e.How != "" {
		keys = append(keys, "how", e.How)
	}
	if e.Error != "" {
		keys = append(keys, "error", e.Error)
	}
	l.log.Info("Decided", keys...)
}

// announced are the decisions that an object's owner has to know of, most of them of
// policies, and how they are told. A plain delete is none of them: the object is gone.
var announced = map[decide.Reason]string{
	decide.KeptByPolicy:       corev1.EventTypeNormal,
	decide.DelayedByPolicy:    corev1.EventTypeNormal,
	decide.WaitsByPolicy:      corev1.EventTypeNormal,
	decide.PropagationDecided: corev1.EventTypeNormal,
	decide.ExceptedByPolicy:   corev1.EventTypeNormal,
	decide.TooManyOwners:      corev1.EventTypeWarning,
	decide.PolicyAtFault:      corev1.EventTypeWarning,
	decide.PolicyLimited:      corev1.EventTypeWarning,
}

// announce tells of what a policy decided, on the object.
func (l *Loop) announce(facts decide.Facts, e record.Entry) {
	kind, ok := announced[e.Reason]
	if !ok || l.policyEvents == nil || e.Result != "" && e.Result != string(act.Done) {
		return
	}
	l.policyEvents.Eventf(referenceTo(facts.Object), kind, string(e.Reason), "%s", e.String())
}

func referenceTo(o graph.Object) *corev1.ObjectReference {
	apiVersion, kind := o.Kind.ToAPIVersionAndKind()
	return &corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: o.Namespace, Name: o.Name, UID: o.UID}
}

// maxWarned is of how many references of one object is told.
const maxWarned = 3

// warn tells of references into another namespace, on the object that has them
// (G-33). The reason and the source are those that people watch for today.
func (l *Loop) warn(facts decide.Facts, plan decide.Plan) {
	for _, o := range plan.Misplaced[:min(len(plan.Misplaced), maxWarned)] {
		ref := facts.Object
		l.events.Eventf(referenceTo(ref), corev1.EventTypeWarning, "OwnerRefInvalidNamespace",
			"ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
			o.Reference.APIVersion, o.Reference.Kind, ref.Namespace, o.Reference.Name, o.Reference.UID, ref.Namespace)
	}
}
