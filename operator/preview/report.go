package preview

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// snapshot is the state of an object after everything that happens immediately.
type snapshot struct {
	terminating bool
	finalizers  []string // of other controllers
	last        *record.Entry
	blockers    []string
	contents    int // number of objects in a namespace that is being deleted
}

// capture returns the state of all remaining objects.
func (p *simulation) capture() map[graph.ID]snapshot {
	shots := map[graph.ID]snapshot{}
	blockers := p.blockers()
	for id := range p.affected() {
		o, ok := p.cluster.objects[id]
		if !ok {
			continue
		}
		s := snapshot{terminating: o.DeletionTimestamp != nil, finalizers: otherFinalizers(o), last: p.last(id)}
		if s.terminating {
			s.blockers = blockers[id]
		}
		if s.terminating && o.contents {
			s.contents = len(p.contents(o.Name))
		}
		shots[id] = s
	}
	return shots
}

// blockers returns the objects that block the deletion of others, by owner.
func (p *simulation) blockers() map[graph.ID][]string {
	found := map[graph.ID][]string{}
	for id := range p.affected() {
		o, ok := p.cluster.objects[id]
		if !ok {
			continue
		}
		for _, ref := range o.OwnerReferences {
			if blocks(ref) {
				owner := graph.IDOf(ref.UID)
				found[owner] = append(found[owner], o.String())
			}
		}
	}
	for _, names := range found {
		slices.Sort(names)
	}
	return found
}

// report returns the result of the simulation.
func (p *simulation) report(first map[graph.ID]snapshot) *Preview {
	result := &Preview{Cascade: string(p.options.Cascade), Notes: p.notes()}
	order := slices.Clone(p.tree.order)
	var others []*object
	for id := range p.touched {
		if o := p.object(id); !p.tree.has(id) && o != nil {
			others = append(others, o)
		}
	}
	slices.SortFunc(others, compare)
	for _, o := range others {
		order = append(order, o.id)
	}
	for _, id := range order {
		result.Objects = append(result.Objects, p.describe(id, first))
	}
	objects := map[graph.ID]*Object{}
	for i, id := range order {
		objects[id] = &result.Objects[i]
	}
	p.markRaces(order, objects)
	p.propagateUnknown(order, objects)
	p.markTimingRaces(order, objects)
	result.Target = result.Objects[0].UID
	return result
}

// propagateUnknown sets outcomes that depend on unknown ones to Unknown. Owners may come after their
// dependents in order, since an object can have several.
func (p *simulation) propagateUnknown(order []graph.ID, at map[graph.ID]*Object) {
	for again := true; again; {
		again = false
		for _, id := range order[1:] {
			if _, is := p.deletedWith[id]; is {
				continue
			}
			o := at[id]
			if owner := p.uncertainOwner(id, at, false); owner != "" && o.Outcome != Unknown {
				o.setUnknown("OwnerUnknown", "it depends on "+owner+", whose outcome is unknown")
				again = true
			}
			if owner := p.uncertainOwner(id, at, true); owner != "" && o.Outcome == Stays && !p.keepsOwner(id, at) {
				o.Outcome, o.Reason, o.Policy = Waits, "OwnerWaits", ""
				o.Message, again = "as long as "+owner+" exists", true
			}
		}
	}
}

// uncertainOwner returns an owner whose outcome is unknown or, with waits, unknown after a wait.
func (p *simulation) uncertainOwner(id graph.ID, at map[graph.ID]*Object, waits bool) string {
	for _, ref := range p.options.Survey.Items[id].Meta.OwnerReferences {
		owner := at[graph.IDOf(ref.UID)]
		if owner == nil {
			continue
		}
		if !waits && owner.Outcome == Unknown || waits && owner.Outcome == Waits && owner.Then == Unknown {
			return ref.Kind + "/" + ref.Name
		}
	}
	return ""
}

// keepsOwner reports whether an object finally has an owner that is not deleted, or no owner.
func (p *simulation) keepsOwner(id graph.ID, at map[graph.ID]*Object) bool {
	o := p.object(id)
	for _, ref := range o.OwnerReferences {
		owner, there := at[graph.IDOf(ref.UID)]
		if !there || owner.Outcome == Stays {
			return true
		}
	}
	return len(o.OwnerReferences) == 0
}

// object returns an object, even if it was deleted.
func (p *simulation) object(id graph.ID) *object {
	if o, ok := p.cluster.objects[id]; ok {
		return o
	}
	return p.cluster.deleted[id]
}

// describe returns the outcome for an object, without dependencies on other outcomes.
func (p *simulation) describe(id graph.ID, first map[graph.ID]snapshot) Object {
	from := p.options.Survey.Items[id]
	o := Object{
		Object: record.ObjectOf(p.options.Survey.Object(from)), Depth: p.tree.depth[id], Owners: len(from.Meta.OwnerReferences),
		Terminating: from.Meta.DeletionTimestamp != nil,
	}
	o.ResourceVersion = ""
	if parent, ok := p.tree.parent[id]; ok {
		o.Parent = p.options.Survey.Items[parent].Meta.UID
	}
	for _, e := range p.decisions[id] {
		o.addEvaluations(e)
	}
	end, gone := p.deletions[id]
	s, left := first[id]
	switch {
	case p.deletedWith[id].reason == "" && p.hasRacingOwners(id):
		o.Reason, o.Message = "Race", "one of its owners orphans it, another one deletes it: the outcome depends on which is processed first"
	case len(p.uncertainties[id]) != 0:
		o.Reason, o.Message = "Unknown", strings.Join(p.uncertainties[id], "; ")
	case gone && !left:
		o.Outcome = Goes
		o.Reason, o.Message, o.Policy = p.deletionReason(id)
	case gone && p.deletedWith[id].reason != "" && !s.terminating:
		o.Outcome, o.Then, o.After, o.Reason = Waits, Goes, end.at.Sub(p.options.Now), "Ordered"
		o.Message = "for the pods in its namespace, which are deleted first"
	default:
		p.describeRemaining(&o, id, s, first)
		if o.Outcome == Waits && gone {
			o.Then, o.After = Goes, end.at.Sub(p.options.Now)
		}
	}
	if o.Outcome == Waits && o.Then == "" && p.decided(id, decide.KeptByPolicy) {
		o.Then = Stays
	}
	return o
}

// addEvaluations adds the evaluations of a decision.
func (o *Object) addEvaluations(e record.Entry) {
	for _, a := range e.Evaluations {
		a.Exchanges, a.Duration, a.Replayable = nil, 0, false
		known := slices.ContainsFunc(o.Evaluations, func(b record.Evaluation) bool {
			return a.Policy == b.Policy && a.Decision == b.Decision && a.Fault == b.Fault && a.Reason == b.Reason
		})
		if !known {
			o.Evaluations = append(o.Evaluations, a)
		}
	}
	switch {
	case e.Reason == decide.PropagationDecided:
		o.DependentsPolicy = e.Policy
		if e.Action == record.Propagate {
			o.Dependents = e.Detail
		}
	case e.Reason == decide.HoldReleased && e.Action == record.RemoveFinalizer && o.Dependents == "" && len(e.Evaluations) != 0:
		o.DependentsPolicy, o.Dependents = e.Policy, e.Evaluations[len(e.Evaluations)-1].Decision
	}
}

func (p *simulation) decided(id graph.ID, reason decide.Reason) bool {
	return slices.ContainsFunc(p.decisions[id], func(e record.Entry) bool { return e.Reason == reason })
}

// deletionReason returns why an object is deleted.
func (p *simulation) deletionReason(id graph.ID) (reason, message, policy string) {
	if id == p.tree.root {
		return "Deleted", "you delete it", ""
	}
	if s, is := p.deletedWith[id]; is {
		return "Deleted", s.reason, ""
	}
	for _, e := range p.decisions[id] {
		if e.Action != record.Delete || e.Result != "Done" {
			continue
		}
		return string(e.Reason), lostOwners(e), e.Policy
	}
	return "Deleted", "it is already being deleted", ""
}

// lostOwners returns the lost owners because of which an object is deleted.
func lostOwners(e record.Entry) string {
	var gone, waiting []string
	for _, o := range e.Owners {
		name := o.Object.Kind + "/" + o.Object.Name
		switch o.Status {
		case decide.Absent.String():
			gone = append(gone, name)
		case decide.Waiting.String():
			waiting = append(waiting, name)
		}
	}
	message := verdictText(e)
	switch {
	case e.Reason == decide.OverriddenByPolicy:
		return "a policy of its owner decided separately about its kind"
	case len(waiting) != 0:
		message = strings.Join(waiting, " and ") + " waits for its deletion" + message
	case len(gone) != 0:
		message = strings.Join(gone, " and ") + map[bool]string{true: " is gone", false: " are gone"}[len(gone) == 1] + message
	}
	return message
}

// verdictText returns the verdict or fault of the policy that decided, to be appended to a message.
func verdictText(e record.Entry) string {
	for _, a := range e.Evaluations {
		if a.Policy != e.Policy {
			continue
		}
		text := a.Decision
		switch {
		case a.Fault != "":
			text = "fault: " + a.Fault
		case a.Reason != "":
			text += " (" + a.Reason + ")"
		}
		return "; " + a.Policy + ": " + text
	}
	if e.Reason == decide.PolicyFault && e.Message != "" {
		return "; " + e.Message
	}
	return ""
}

// notes returns additional messages.
func (p *simulation) notes() []string {
	var notes []string
	target := p.options.Survey.Items[p.tree.root]
	for _, ref := range target.Meta.OwnerReferences {
		owner, there := p.options.Survey.Items[graph.IDOf(ref.UID)]
		if ref.Controller != nil && *ref.Controller && there && owner.Meta.DeletionTimestamp == nil && !p.tree.has(graph.IDOf(ref.UID)) {
			notes = append(notes, fmt.Sprintf("%s/%s is controlled by %s/%s, which may recreate it",
				target.Resource.Kind, target.Meta.Name, ref.Kind, ref.Name))
		}
	}
	var withoutHold []string
	for id, entries := range p.decisions {
		for _, e := range entries {
			if e.Reason == decide.HoldRequired && !p.options.Survey.FromFiles && p.tree.has(id) {
				withoutHold = append(withoutHold, e.Object.Kind+"/"+e.Object.Name)
			}
		}
	}
	if slices.Sort(withoutHold); len(withoutHold) != 0 {
		notes = append(notes, fmt.Sprintf("%s: a policy decides about the dependents, but there is no hold yet. "+
			"The preview assumes a hold: check that Gleaner is running", joinFirst(withoutHold)))
	}
	return notes
}

// joinFirst joins the first names, with the number of the others.
func joinFirst(names []string) string {
	const max = 3
	if len(names) <= max {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:max], ", "), len(names)-max)
}

// FormatDuration formats a duration, rounded to seconds and without trailing zero units.
func FormatDuration(d time.Duration) string {
	text := d.Round(time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
