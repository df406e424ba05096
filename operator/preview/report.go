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

// reporter describes the outcome of a simulation that has ended.
type reporter struct {
	options Options
	tree    tree
	cluster *simulatedCluster // at the end
	*history
	first map[graph.ID]snapshot // of the objects that remain after everything that happens immediately
}

// report returns the result of the simulation.
func (r reporter) report() *Preview {
	result := &Preview{Cascade: string(r.options.Cascade), Notes: r.notes()}
	order := slices.Clone(r.tree.order)
	var others []*object
	for id := range r.touched {
		if o := r.object(id); !r.tree.has(id) && o != nil {
			others = append(others, o)
		}
	}
	slices.SortFunc(others, compare)
	for _, o := range others {
		order = append(order, o.id)
	}
	for _, id := range order {
		result.Objects = append(result.Objects, r.describe(id))
	}
	objects := map[graph.ID]*Object{}
	for i, id := range order {
		objects[id] = &result.Objects[i]
	}
	races := raceFinder{survey: r.options.Survey, policies: r.options.Policies, history: r.history}
	races.mark(order, objects)
	r.propagateUnknown(order, objects)
	races.markTiming(order, objects)
	result.Target = result.Objects[0].UID
	return result
}

// propagateUnknown sets outcomes that depend on unknown ones to Unknown. Owners may come after their
// dependents in order, since an object can have several.
func (r reporter) propagateUnknown(order []graph.ID, at map[graph.ID]*Object) {
	for again := true; again; {
		again = false
		for _, id := range order {
			if _, is := r.deletedWith[id]; is || r.tree.isRoot(id) {
				continue
			}
			o := at[id]
			if owner := r.uncertainOwner(id, at, false); owner != "" && o.Outcome != Unknown {
				o.setUnknown("OwnerUnknown", "it depends on "+owner+", whose outcome is unknown")
				again = true
			}
			if owner := r.uncertainOwner(id, at, true); owner != "" && o.Outcome == Stays && !r.keepsOwner(id, at) {
				o.Outcome, o.Reason, o.Policy = Waits, "OwnerWaits", ""
				o.Message, again = "as long as "+owner+" exists", true
			}
		}
	}
}

// uncertainOwner returns an owner whose outcome is unknown or, with waits, unknown after a wait.
func (r reporter) uncertainOwner(id graph.ID, at map[graph.ID]*Object, waits bool) string {
	for _, ref := range r.options.Survey.Items[id].Meta.OwnerReferences {
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
func (r reporter) keepsOwner(id graph.ID, at map[graph.ID]*Object) bool {
	o := r.object(id)
	for _, ref := range o.OwnerReferences {
		owner, there := at[graph.IDOf(ref.UID)]
		if !there || owner.Outcome == Stays {
			return true
		}
	}
	return len(o.OwnerReferences) == 0
}

// object returns an object, even if it was deleted.
func (r reporter) object(id graph.ID) *object {
	if o, ok := r.cluster.objects[id]; ok {
		return o
	}
	return r.cluster.deleted[id]
}

// describe returns the outcome for an object, without dependencies on other outcomes.
func (r reporter) describe(id graph.ID) Object {
	from := r.options.Survey.Items[id]
	o := Object{
		Object: record.ObjectOf(r.options.Survey.Object(from)), Depth: r.tree.depth[id], Owners: len(from.Meta.OwnerReferences),
		Terminating: from.Meta.DeletionTimestamp != nil,
	}
	o.ResourceVersion = ""
	if parent, ok := r.tree.parent[id]; ok {
		o.Parent = r.options.Survey.Items[parent].Meta.UID
	}
	for _, e := range r.decisions[id] {
		o.addEvaluations(e)
	}
	end, gone := r.deletions[id]
	s, left := r.first[id]
	switch {
	case r.deletedWith[id].reason == "" && r.hasRacingOwners(r.options.Survey.Items[id]):
		o.Reason, o.Message = "Race", "one of its owners orphans it, another one deletes it: the outcome depends on which is processed first"
	case len(r.uncertainties[id]) != 0:
		o.Reason, o.Message = "Unknown", strings.Join(r.uncertainties[id], "; ")
	case gone && !left:
		o.Outcome = Goes
		o.Reason, o.Message, o.Policy = r.deletionReason(id)
	case gone && r.deletedWith[id].reason != "" && !s.terminating:
		o.Outcome, o.Then, o.After, o.Reason = Waits, Goes, end.at.Sub(r.options.Now), "Ordered"
		o.Message = "for the pods in its namespace, which are deleted first"
	default:
		r.describeRemaining(&o, id, s)
		if o.Outcome == Waits && gone {
			o.Then, o.After = Goes, end.at.Sub(r.options.Now)
		}
	}
	if o.Outcome == Waits && o.Then == "" && r.decided(id, decide.KeptByPolicy) {
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

// deletionReason returns why an object is deleted.
func (r reporter) deletionReason(id graph.ID) (reason, message, policy string) {
	if r.tree.isRoot(id) {
		return "Deleted", "you delete it", ""
	}
	if s, is := r.deletedWith[id]; is {
		return "Deleted", s.reason, ""
	}
	for _, e := range r.decisions[id] {
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
func (r reporter) notes() []string {
	var notes []string
	for _, root := range r.tree.roots {
		target := r.options.Survey.Items[root]
		for _, ref := range target.Meta.OwnerReferences {
			owner, there := r.options.Survey.Items[graph.IDOf(ref.UID)]
			if ref.Controller != nil && *ref.Controller && there && owner.Meta.DeletionTimestamp == nil && !r.tree.has(graph.IDOf(ref.UID)) {
				notes = append(notes, fmt.Sprintf("%s/%s is controlled by %s/%s, which may recreate it",
					target.Resource.Kind, target.Meta.Name, ref.Kind, ref.Name))
			}
		}
	}
	var withoutHold []string
	for id, entries := range r.decisions {
		for _, e := range entries {
			if e.Reason == decide.HoldRequired && !r.options.Survey.FromFiles && r.tree.has(id) {
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
