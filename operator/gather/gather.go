// Package gather finds out what a decision about one object rests on.
//
// It starts from what the graph knows and reads from the API server only what
// that leaves open: an owner that was never seen, or one that is waiting for
// its dependents and may have been told otherwise since. What it learns about
// others on the way is handed on as an ordinary event. It judges nothing, and
// writes nothing.
//
// The rule that everything else here serves: a read that failed, for whatever
// reason, leaves the owner Unknown. Only a proof makes it Absent; see prove.
package gather

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// maxPassReads is how many owners are read for one object before the facts about it are
// returned. Proofs are kept, so that the next pass goes on from there.
const maxPassReads = 500

// Graph is what is known of objects and their owners.
type Graph interface {
	Look(graph.ID) (graph.View, bool)
	Cycle(graph.ID) (graph.Edge, bool)
}

// Gatherer gathers facts. All fields are required. Its methods may be called
// concurrently.
type Gatherer struct {
	Graph   Graph
	Catalog func() *catalog.Catalog // the types served now
	Reader  *Reader
	Barrier *Barrier
	Observe func(...graph.Event) // takes in what was learnt by the way
	Now     func() time.Time
}

// Gather returns the facts about one object. It reports false if the object is
// not there to decide about. An owner that could not be read is no error but a
// fact.
func (g *Gatherer) Gather(ctx context.Context, id graph.ID) (decide.Facts, bool) {
	view, ok := g.Graph.Look(id)
	if !ok {
		return decide.Facts{}, false
	}
	facts := decide.Facts{Object: view.Object, Dependents: view.Dependents, Blocking: view.Blocking, Blockers: view.Blockers}
	facts.Owners, facts.Unread = g.owners(ctx, view)
	if g.Barrier.Concerns(view) {
		facts.Confirmed, facts.Unconfirmed = g.Barrier.Outcome(id, g.Barrier.orphans(view))
	}
	if view.Waits() && view.Blocking != 0 {
		if edge, found := g.Graph.Cycle(id); found {
			facts.Cycle = &edge
		}
	}
	return facts, true
}

// Unwatched returns the facts about an object of a type that is not watched, as far as
// that and its owners tell.
func (g *Gatherer) Unwatched(ctx context.Context, o graph.Object) decide.Facts {
	view, facts := graph.View{ID: graph.IDOf(o.UID), Object: o}, decide.Facts{Object: o}
	for _, ref := range o.Owners {
		view.Claims = append(view.Claims, graph.Claim{Reference: ref})
	}
	facts.Owners, facts.Unread = g.owners(ctx, view)
	return facts
}

// reads bound what is read for one object.
type reads struct{ left, refused int }

// owners says how each owner reference stands, and how many owners were not asked for
// because there are too many.
func (g *Gatherer) owners(ctx context.Context, view graph.View) (owners []decide.Owner, unread int) {
	r := reads{left: maxPassReads}
	for _, claim := range view.Claims {
		owners = append(owners, g.owner(ctx, view, claim, &r))
	}
	return owners, r.refused
}

// owner says how one owner reference stands.
func (g *Gatherer) owner(ctx context.Context, view graph.View, claim graph.Claim, r *reads) decide.Owner {
	owner := decide.Owner{Reference: claim.Reference}
	if claim.Known == graph.Orphaning && (!claim.Doubted || view.Object.Terminating) {
		owner.Standing, owner.Reason = decide.Orphaning, leaves
		return owner
	}
	if view.Object.Terminating {
		owner.Reason = "not looked at, since the object itself is being deleted"
		return owner
	}
	if claim.OwnerNamespace != view.Object.Namespace {
		owner.Elsewhere = claim.OwnerNamespace
	}
	at := view.Claim(claim.Reference)
	if at.UID == "" {
		owner.Reason = "the reference names no UID"
		return owner
	}
	resource, served := g.Catalog().Resource(at.Kind)
	doubted := claim.Doubted && served // there is no asking for what is not served
	switch {
	case claim.Known == graph.Disproved && !doubted:
		return absent(owner, claim.GoneAt, "a read found it not to exist")
	case claim.Known == graph.Gone && !doubted && g.believes(claim, at.Kind, resource, served):
		return absent(owner, claim.GoneAt, "its deletion was watched")
	case claim.Known == graph.Standing && served:
		owner.Standing, owner.Reason = decide.Present, "it is watched"
		return owner
	}
	switch {
	case !served:
		owner.Reason = fmt.Sprintf("%s is not served", at.Kind.GroupVersion().WithKind(at.Kind.Kind))
		return owner
	case view.Object.Namespace == "" && resource.Namespaced:
		owner.Standing = decide.Unresolvable
		owner.Reason = fmt.Sprintf("a cluster-scoped object can't be owned by one of the namespaced type %s", at.Kind.Kind)
		if owner.Elsewhere != "" {
			owner.Reason += fmt.Sprintf(", as it is by one in namespace %s", owner.Elsewhere)
		}
		return owner
	}
	if !resource.Namespaced {
		at.Namespace = ""
	}
	if r.left == 0 {
		r.refused++
		owner.Reason = fmt.Sprintf("not read yet: %d owners are read at once", maxPassReads)
		return owner
	}
	r.left--
	answer, err := g.Reader.Owner(ctx, view.Object.Namespace, at, resource)
	if err != nil { // as it is at once when ctx has ended
		owner.Reason = err.Error()
		return owner
	}
	return g.answered(owner, at, resource, answer)
}

// believes reports whether the watched deletion of an owner settles a claim on
// it. Of an aggregated API server's type it does not, as long as the type is
// there, if only as one that discovery can't be asked about. Once the type is
// gone altogether the claim has to be by the version that the watch was of:
// of another one nobody can tell that it was the same (G-36).
func (g *Gatherer) believes(claim graph.Claim, kind schema.GroupVersionKind, resource catalog.Resource, served bool) bool {
	if served {
		return resource.Local
	}
	last, known := g.Catalog().Preferred(kind.GroupKind())
	return claim.ByVersion == kind.Version && (!known || last.Local)
}

// leaves is why an owner is orphaning.
const leaves = "it is being deleted and leaves its dependents"

func absent(owner decide.Owner, at time.Time, reason string) decide.Owner {
	owner.Standing, owner.LearntAt, owner.Reason = decide.Absent, at, reason
	return owner
}

// answered says how an owner stands by what a read has shown.
func (g *Gatherer) answered(owner decide.Owner, at graph.Coordinates, resource catalog.Resource, answer answer) decide.Owner {
	now := g.Now()
	g.Observe(learned(at, resource, answer, now)...)
	if answer.absent {
		return absent(owner, now, answer.reason)
	}
	owner.Polled = true
	switch o := answer.object; {
	case o.Held: // what becomes of its dependents is still to be decided
		owner.Standing, owner.Reason = decide.Present, answer.reason
	case o.Terminating && o.Orphan:
		owner.Standing, owner.Reason = decide.Orphaning, leaves
	case o.Terminating && o.Foreground:
		owner.Standing, owner.Reason = decide.Waiting, "it is being deleted in the foreground"
	default:
		owner.Standing, owner.Reason = decide.Present, answer.reason
	}
	return owner
}

// Reread reads an object that turned out to be other than the graph had it,
// and hands on what it found.
func (g *Gatherer) Reread(ctx context.Context, o graph.Object) error {
	resource, ok := g.Catalog().Preferred(o.Kind.GroupKind())
	if !ok {
		return fmt.Errorf("read %s again: its type is not served", graph.Coordinates{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name})
	}
	at := graph.Coordinates{UID: o.UID, Kind: resource.Version.GroupVersion().WithKind(o.Kind.Kind), Namespace: o.Namespace, Name: o.Name}
	answer, err := g.Reader.Item(ctx, at, resource)
	if err != nil {
		return err
	}
	g.Observe(learned(at, resource, answer, g.Now())...)
	return nil
}
