package preview

import (
	"slices"

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
