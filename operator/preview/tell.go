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

// shot is how an object is when nothing more happens at once.
type shot struct {
	terminating bool
	finalizers  []string // of others
	last        *record.Entry
	blockers    []string
	inside      int // objects, of a namespace that is emptied
}

// photograph keeps how everything is now that is left.
func (p *preview) photograph() map[graph.ID]shot {
	shots := map[graph.ID]shot{}
	blockers := p.blockers()
	for id := range p.concerned() {
		o, ok := p.world.objects[id]
		if !ok {
			continue
		}
		s := shot{terminating: o.DeletionTimestamp != nil, finalizers: othersOf(o), last: p.last(id)}
		if s.terminating {
			s.blockers = blockers[id]
		}
		if s.terminating && o.contents {
			s.inside = len(p.contents(o.Name))
		}
		shots[id] = s
	}
	return shots
}

// blockers are the objects that block the deletion of others, by those.
func (p *preview) blockers() map[graph.ID][]string {
	found := map[graph.ID][]string{}
	for id := range p.concerned() {
		o, ok := p.world.objects[id]
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

// tell says what becomes of each object.
func (p *preview) tell(first map[graph.ID]shot) *Preview {
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
	p.race(order, objects)
	p.spread(order, objects)
	p.hurry(order, objects)
	result.Target = result.Objects[0].UID
	return result
}

// spread has what depends on something that is not known not be known either. Owners
// may come after what they own: an object has several.
func (p *preview) spread(order []graph.ID, at map[graph.ID]*Object) {
	for again := true; again; {
		again = false
		for _, id := range order[1:] {
			if _, is := p.swept[id]; is {
				continue
			}
			o := at[id]
			if owner := p.doubtful(id, at, false); owner != "" && o.Outcome != Unknown {
				o.unknown("OwnerUnknown", "it depends on "+owner+", of which it is not known")
				again = true
			}
			if owner := p.doubtful(id, at, true); owner != "" && o.Outcome == Stays && !p.kept(id, at) {
				o.Outcome, o.Reason, o.Policy = Waits, "OwnerWaits", ""
				o.Message, again = "as long as "+owner+" is there", true
			}
		}
	}
}

// doubtful names an owner of which it is not known what becomes of it or, if it waits,
// what comes then.
func (p *preview) doubtful(id graph.ID, at map[graph.ID]*Object, waits bool) string {
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

// kept reports whether an object has an owner in the end that stays, or none at all.
func (p *preview) kept(id graph.ID, at map[graph.ID]*Object) bool {
	o := p.object(id)
	for _, ref := range o.OwnerReferences {
		owner, there := at[graph.IDOf(ref.UID)]
		if !there || owner.Outcome == Stays {
			return true
		}
	}
	return len(o.OwnerReferences) == 0
}

// object is an object whether or not it has come to its end.
func (p *preview) object(id graph.ID) *object {
	if o, ok := p.world.objects[id]; ok {
		return o
	}
	return p.world.ended[id]
}

// describe says what becomes of an object, but for what that depends on.
func (p *preview) describe(id graph.ID, first map[graph.ID]shot) Object {
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
		o.asked(e)
	}
	end, gone := p.endings[id]
	s, left := first[id]
	switch {
	case p.swept[id].why == "" && p.races(id):
		o.Reason, o.Message = "Race", "one of its owners leaves it behind, another one takes it along: it depends on which is first"
	case len(p.doubts[id]) != 0:
		o.Reason, o.Message = "Unknown", strings.Join(p.doubts[id], "; ")
	case gone && !left:
		o.Outcome = Goes
		o.Reason, o.Message, o.Policy = p.whyGone(id)
	case gone && p.swept[id].why != "" && !s.terminating:
		o.Outcome, o.Then, o.After, o.Reason = Waits, Goes, end.at.Sub(p.options.Now), "Ordered"
		o.Message = "for the pods in its namespace, which go first"
	default:
		p.describeLeft(&o, id, s, first)
		if o.Outcome == Waits && gone {
			o.Then, o.After = Goes, end.at.Sub(p.options.Now)
		}
	}
	if o.Outcome == Waits && o.Then == "" && p.decided(id, decide.KeptByPolicy) {
		o.Then = Stays
	}
	return o
}

// asked takes what a decision says of the policies that were asked.
func (o *Object) asked(e record.Entry) {
	for _, a := range e.Asked {
		a.Exchanges, a.Duration, a.Replayable = nil, 0, false
		known := slices.ContainsFunc(o.Asked, func(b record.Asked) bool {
			return a.Policy == b.Policy && a.Decision == b.Decision && a.Fault == b.Fault && a.Reason == b.Reason
		})
		if !known {
			o.Asked = append(o.Asked, a)
		}
	}
	switch {
	case e.Reason == decide.PropagationDecided:
		o.DependentsPolicy = e.Policy
		if e.Action == record.Propagate {
			o.Dependents = e.How
		}
	case e.Reason == decide.HoldReleased && e.Action == record.RemoveFinalizer && o.Dependents == "" && len(e.Asked) != 0:
		o.DependentsPolicy, o.Dependents = e.Policy, e.Asked[len(e.Asked)-1].Decision
	}
}

func (p *preview) decided(id graph.ID, reason decide.Reason) bool {
	return slices.ContainsFunc(p.decisions[id], func(e record.Entry) bool { return e.Reason == reason })
}

// whyGone says why an object goes.
func (p *preview) whyGone(id graph.ID) (reason, message, policy string) {
	if id == p.tree.root {
		return "Deleted", "you delete it", ""
	}
	if s, is := p.swept[id]; is {
		return "Deleted", s.why, ""
	}
	for _, e := range p.decisions[id] {
		if e.Action != record.Delete || e.Result != "Done" {
			continue
		}
		return string(e.Reason), lost(e), e.Policy
	}
	return "Deleted", "it is being deleted already", ""
}

// lost says which owners an object has lost that is deleted for it.
func lost(e record.Entry) string {
	var gone, waiting []string
	for _, o := range e.Owners {
		name := o.Object.Kind + "/" + o.Object.Name
		switch o.Standing {
		case decide.Absent.String():
			gone = append(gone, name)
		case decide.Waiting.String():
			waiting = append(waiting, name)
		}
	}
	message := said(e)
	switch {
	case e.Reason == decide.ExceptedByPolicy:
		return "an exception of the policy of its owner"
	case len(waiting) != 0:
		message = strings.Join(waiting, " and ") + " waits for it to go first" + message
	case len(gone) != 0:
		message = strings.Join(gone, " and ") + map[bool]string{true: " is gone", false: " are gone"}[len(gone) == 1] + message
	}
	return message
}

// said is what the policy said that a decision goes by, as the rest of a sentence.
func said(e record.Entry) string {
	for _, a := range e.Asked {
		if a.Policy != e.Policy {
			continue
		}
		text := a.Decision
		switch {
		case a.Fault != "":
			text = "is at fault: " + a.Fault
		case a.Reason != "":
			text += " (" + a.Reason + ")"
		}
		return "; " + a.Policy + " says " + text
	}
	if e.Reason == decide.PolicyAtFault && e.Because != "" {
		return "; " + e.Because
	}
	return ""
}

// notes are what else there is to know.
func (p *preview) notes() []string {
	var notes []string
	target := p.options.Survey.Items[p.tree.root]
	for _, ref := range target.Meta.OwnerReferences {
		owner, there := p.options.Survey.Items[graph.IDOf(ref.UID)]
		if ref.Controller != nil && *ref.Controller && there && owner.Meta.DeletionTimestamp == nil && !p.tree.has(graph.IDOf(ref.UID)) {
			notes = append(notes, fmt.Sprintf("%s/%s is controlled by %s/%s, which may make another one like it",
				target.Resource.Kind, target.Meta.Name, ref.Kind, ref.Name))
		}
	}
	var unheld []string
	for id, entries := range p.decisions {
		for _, e := range entries {
			if e.Reason == decide.HoldWanted && !p.options.Survey.Files && p.tree.has(id) {
				unheld = append(unheld, e.Object.Kind+"/"+e.Object.Name)
			}
		}
	}
	if slices.Sort(unheld); len(unheld) != 0 {
		notes = append(notes, fmt.Sprintf("%s: a policy decides what becomes of the dependents, and there is no hold yet. "+
			"This is told as if there were one: see that Gleaner is running", few(unheld)))
	}
	return notes
}

// few names some of many.
func few(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// Round is a duration without what nobody wants to know.
func Round(d time.Duration) string {
	text := d.Round(time.Second).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}
