package preview

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// describeLeft describes an object that does not go at once.
func (p *preview) describeLeft(o *Object, id graph.ID, s shot, first map[graph.ID]shot) {
	switch {
	case s.terminating:
		o.Outcome = Waits
		o.Reason, o.Message, o.Policy = p.whyWaiting(s)
		return
	case s.last != nil && p.describeDecided(o, *s.last) && o.Outcome != Stays:
		return
	}
	if _, gone := p.endings[id]; gone { // later
		o.Outcome, o.Reason, o.Message, o.Policy = Waits, "OwnerWaits", "its owner is still there", ""
		if owner := p.leftOwner(id, first); owner != "" {
			o.Message = "until " + owner + " is gone"
		}
		return
	}
	if o.Outcome == Stays {
		return
	}
	o.Outcome = Stays
	o.Reason, o.Message = p.whyStaying(id)
}

// whyWaiting says what an object waits for that is being deleted.
func (p *preview) whyWaiting(s shot) (reason, message, policy string) {
	if s.last != nil && (s.last.Reason == decide.WaitsByPolicy || s.last.Reason == decide.PolicyAtFault) {
		return string(s.last.Reason), strings.TrimPrefix(said(*s.last), "; "), s.last.Policy
	}
	var parts []string
	for _, f := range s.finalizers {
		parts = append(parts, "finalizer "+f+p.servedBy(f))
	}
	if s.inside != 0 {
		parts = append(parts, fmt.Sprintf("%d of the objects in it", s.inside))
	}
	if len(s.blockers) != 0 {
		parts = append(parts, few(s.blockers))
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

// servedBy names the resource that serves a finalizer, if one of ours does.
func (p *preview) servedBy(entry string) string {
	if p.options.Reading == nil {
		return ""
	}
	for _, f := range p.options.Reading.Finalizers {
		if f.Entry == entry {
			return ", served by " + f.String()
		}
	}
	return ""
}

// describeDecided describes an object by what was decided about it last, if that
// says what becomes of it.
func (p *preview) describeDecided(o *Object, e record.Entry) bool {
	o.Reason, o.Policy = string(e.Reason), e.Policy
	policy := strings.TrimPrefix(said(e), "; ")
	switch e.Reason {
	case decide.KeptByPolicy:
		o.Outcome, o.Message = Stays, policy
	case decide.DelayedByPolicy, decide.WaitsByPolicy, decide.PolicyAtFault:
		o.Outcome, o.Message = Waits, policy
	case decide.OwnerRemains:
		o.Outcome, o.Message = Stays, "it has another owner: "+owners(e, decide.Present)
	case decide.OwnerOrphans:
		o.Outcome, o.Message = Stays, "orphaned by "+owners(e, decide.Orphaning)
	case decide.ExceptedByPolicy:
		o.Outcome, o.Message = Stays, "an exception of the policy of its owner"
	case decide.OwnersUnreadable:
		o.Outcome, o.Message = Unknown, unread(e)
	case decide.OwnersUnresolvable:
		o.Outcome, o.Message = Stays, unread(e)
	default:
		o.Reason, o.Policy = "", ""
		return false
	}
	return true
}

// owners names the owners that stand so.
func owners(e record.Entry, standing decide.Standing) string {
	var names []string
	for _, o := range e.Owners {
		if o.Standing == standing.String() {
			names = append(names, o.Object.Kind+"/"+o.Object.Name)
		}
	}
	return strings.Join(names, ", ")
}

// unread names the owners that nothing is known of, and why.
func unread(e record.Entry) string {
	var texts []string
	for _, o := range e.Owners {
		if o.Standing == decide.Unknown.String() || o.Standing == decide.Unresolvable.String() {
			texts = append(texts, fmt.Sprintf("its owner %s/%s can't be read: %s", o.Object.Kind, o.Object.Name, o.Because))
		}
	}
	return strings.Join(texts, "; ")
}

// leftOwner names an owner that is still there when nothing more happens at once.
func (p *preview) leftOwner(id graph.ID, first map[graph.ID]shot) string {
	for _, ref := range p.options.Survey.Items[id].Meta.OwnerReferences {
		if _, left := first[graph.IDOf(ref.UID)]; left {
			return ref.Kind + "/" + ref.Name
		}
	}
	return ""
}

// whyStaying says why nothing happens to an object.
func (p *preview) whyStaying(id graph.ID) (reason, message string) {
	item := p.options.Survey.Items[id]
	for _, ref := range item.Meta.OwnerReferences {
		owner := p.object(graph.IDOf(ref.UID))
		if owner == nil || owner.DeletionTimestamp != nil {
			continue
		}
		return "OwnerRemains", "its owner " + owner.String() + " stays"
	}
	if e := p.last(id); e != nil && e.Reason == decide.OwnerOrphans {
		return string(e.Reason), "orphaned by " + owners(*e, decide.Orphaning)
	}
	if slices.ContainsFunc(p.decisions[id], func(e record.Entry) bool { return e.Action == record.DropReferences }) {
		return "Released", "it has lost its owner"
	}
	return "", "nothing asks for it to go"
}
