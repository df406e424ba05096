package preview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// describeRemaining describes an object that is not deleted immediately.
func (r reporter) describeRemaining(o *Object, id graph.ID, s snapshot) {
	switch {
	case s.terminating:
		o.Outcome = Waits
		o.Reason, o.Message, o.Policy = r.waitingReason(s)
		return
	case s.last != nil && r.describeDecided(o, *s.last) && o.Outcome != Stays:
		return
	}
	if _, gone := r.deletions[id]; gone { // later
		o.Outcome, o.Reason, o.Message, o.Policy = Waits, "OwnerWaits", "until its owner is gone", ""
		switch owner, inOrder := r.remainingOwner(id); {
		case owner != "" && inOrder:
			o.Reason, o.Message = string(decide.DependentsInOrder), "until its wave starts: dependents of "+owner+" are deleted in order"
		case owner != "":
			o.Message = "until " + owner + " is gone"
		}
		return
	}
	if o.Outcome == Stays {
		return
	}
	o.Outcome = Stays
	o.Reason, o.Message = r.keptReason(id)
}

// waitingReason returns what an object that is being deleted waits for.
func (r reporter) waitingReason(s snapshot) (reason, message, policy string) {
	if s.last != nil && (s.last.Reason == decide.PolicyWaiting || s.last.Reason == decide.PolicyFault) {
		return string(s.last.Reason), strings.TrimPrefix(verdictText(*s.last), "; "), s.last.Policy
	}
	if s.last != nil && s.last.Reason == decide.DependentsInOrder {
		var first []string
		for _, b := range s.last.Blockers {
			first = append(first, b.Object.Kind+"/"+b.Object.Name)
		}
		return string(s.last.Reason), "for its dependents, which are deleted in order: first " + joinFirst(first), s.last.Policy
	}
	var parts []string
	for _, f := range s.finalizers {
		parts = append(parts, "finalizer "+f+r.handledBy(f))
	}
	if s.contents != 0 {
		parts = append(parts, fmt.Sprintf("%d of the objects in it", s.contents))
	}
	if len(s.blockers) != 0 {
		parts = append(parts, joinFirst(s.blockers))
	}
	reason = "DependentsRemain"
	if len(s.finalizers) != 0 {
		reason = "Finalizers"
	}
	if len(parts) == 0 {
		return reason, "it is being deleted", ""
	}
	return reason, "for " + strings.Join(parts, " and "), ""
}

// handledBy returns the Finalizer or ClusterFinalizer that handles a finalizer, if any.
func (r reporter) handledBy(entry string) string {
	if r.options.Policies == nil {
		return ""
	}
	for _, f := range r.options.Policies.Finalizers {
		if f.Entry == entry {
			return ", handled by " + f.String()
		}
	}
	return ""
}

// describeDecided describes an object by the last decision about it, if that determines
// the outcome.
func (r reporter) describeDecided(o *Object, e record.Entry) bool {
	o.Reason, o.Policy = string(e.Reason), e.Policy
	policy := strings.TrimPrefix(verdictText(e), "; ")
	switch e.Reason {
	case decide.KeptByPolicy:
		o.Outcome, o.Message = Stays, policy
	case decide.DelayedByPolicy, decide.PolicyWaiting, decide.PolicyFault:
		o.Outcome, o.Message = Waits, policy
	case decide.OwnerRemains:
		o.Outcome, o.Message = Stays, "it has another owner: "+ownersWithStanding(e, decide.Present)
	case decide.OrphanedByOwner:
		o.Outcome, o.Message = Stays, "orphaned by "+ownersWithStanding(e, decide.Orphaning)
	case decide.OverriddenByPolicy:
		o.Outcome, o.Message = Stays, "a policy of its owner decided separately about its kind"
	case decide.OwnersUnreadable:
		o.Outcome, o.Message = Unknown, unreadOwners(e)
	case decide.OwnersUnresolvable:
		o.Outcome, o.Message = Stays, unreadOwners(e)
	default:
		o.Reason, o.Policy = "", ""
		return false
	}
	return true
}

// ownersWithStanding returns the owners with a status.
func ownersWithStanding(e record.Entry, status decide.OwnerStatus) string {
	var names []string
	for _, o := range e.Owners {
		if o.Status == status.String() {
			names = append(names, o.Object.Kind+"/"+o.Object.Name)
		}
	}
	return strings.Join(names, ", ")
}

// unreadOwners returns the owners that could not be read, with the causes.
func unreadOwners(e record.Entry) string {
	var texts []string
	for _, o := range e.Owners {
		if o.Status == decide.Unknown.String() || o.Status == decide.Unresolvable.String() {
			texts = append(texts, fmt.Sprintf("its owner %s/%s could not be read: %s", o.Object.Kind, o.Object.Name, o.Message))
		}
	}
	return strings.Join(texts, "; ")
}

// remainingOwner returns an owner that is not deleted immediately, and whether it deletes its dependents in order.
func (r reporter) remainingOwner(id graph.ID) (name string, inOrder bool) {
	for _, ref := range r.options.Survey.Items[id].Meta.OwnerReferences {
		if s, left := r.first[graph.IDOf(ref.UID)]; left {
			return ref.Kind + "/" + ref.Name, s.last != nil && s.last.Reason == decide.DependentsInOrder
		}
	}
	return "", false
}

// keptReason returns why an object is not deleted.
func (r reporter) keptReason(id graph.ID) (reason, message string) {
	item := r.options.Survey.Items[id]
	for _, ref := range item.Meta.OwnerReferences {
		owner := r.object(graph.IDOf(ref.UID))
		if owner == nil || owner.DeletionTimestamp != nil {
			continue
		}
		return "OwnerRemains", "its owner " + owner.String() + " is not deleted"
	}
	if e := r.last(id); e != nil && e.Reason == decide.OrphanedByOwner {
		return string(e.Reason), "orphaned by " + ownersWithStanding(*e, decide.Orphaning)
	}
	if slices.ContainsFunc(r.decisions[id], func(e record.Entry) bool { return e.Action == record.DropReferences }) {
		return "Released", "it has no owner reference any more"
	}
	return "", "nothing deletes it"
}
