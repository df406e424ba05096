// Package gather collects the facts for a decision about one object.
//
// It starts from the graph and reads from the API server only what the graph does not
// have: an owner that was never seen, or one in foreground deletion whose propagation
// policy may have changed since. Whatever it reads about other objects is passed on as an
// ordinary event. It decides nothing and writes nothing.
//
// The most important rule: a read that failed, for whatever reason, leaves the owner
// Unknown. Only a proof makes it Absent; see prove.
package gather

import (
	"context"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/order"
)

// maxReadsPerPass is the maximum number of owners that are read for one object before its
// facts are returned. Proofs are cached, so the next pass continues from there.
const maxReadsPerPass = 500

// Graph provides objects and their owners.
type Graph interface {
	Lookup(graph.ID) (graph.View, bool)
	Cycle(graph.ID) (graph.Edge, bool)
	IsHeldTerminating(graph.ID) bool
	Owners(id graph.ID, yield func(graph.ID) bool)
}

// Gatherer gathers facts. All fields are required, unless stated otherwise. Its methods may be called
// concurrently.
type Gatherer struct {
	Graph   Graph
	Catalog func() *catalog.Catalog // the types served now
	Reader  *Reader
	Barrier *Barrier
	Observe func(...graph.Event) // receives what was read
	Now     func() time.Time

	// Requests are those that the built-in garbage collector may have carried out. Nil in
	// primary mode.
	Requests *Requests

	// Order has the owners with dependents that are deleted in order. Nil means that none has.
	Order *order.Progress

	// Observed reports whether the dependents of an owner that orphans them may be released: its controller
	// has observed the deletion. Nil means that this doesn't matter.
	Observed func(owner graph.ID, kind schema.GroupKind) bool
}

// Gather returns the facts about one object. It returns false if the object is not in
// the graph. An owner that could not be read is not an error but a fact.
func (g *Gatherer) Gather(ctx context.Context, id graph.ID) (decide.Facts, bool) {
	view, ok := g.Graph.Lookup(id)
	if !ok {
		return decide.Facts{}, false
	}
	facts := decide.Facts{Object: view.Object, Dependents: view.Dependents, Blocking: view.Blocking, Blockers: view.Blockers}
	facts.Owners, facts.UnreadOwners = g.owners(ctx, view)
	if g.Requests != nil && view.Object.Held && view.Object.Terminating {
		facts.CarriedOut = carriedOut(view, g.Requests.Of(id))
	}
	if g.Barrier.NeedsConfirmation(view) {
		facts.Confirmed, facts.ConfirmError = g.Barrier.Outcome(id, g.Barrier.orphans(view))
	}
	if view.Waits() && view.Blocking != 0 {
		if edge, found := g.Graph.Cycle(id); found {
			facts.Cycle = &edge
		}
	}
	return facts, true
}

// carriedOut returns a requested propagation policy if nothing is left of it to be done; ""
// otherwise. Its finalizer may be gone because another DELETE has replaced the request.
func carriedOut(owner graph.View, requested metav1.DeletionPropagation) metav1.DeletionPropagation {
	switch {
	case requested == metav1.DeletePropagationOrphan && owner.Dependents == 0,
		requested == metav1.DeletePropagationForeground && owner.Blocking == 0:
		return requested
	default:
		return ""
	}
}

// GatherUnwatched returns the facts about an object of a type that is not watched. They are
// limited to the object and its owners.
func (g *Gatherer) GatherUnwatched(ctx context.Context, o graph.Object) decide.Facts {
	view, facts := graph.View{ID: graph.IDOf(o.UID), Object: o}, decide.Facts{Object: o}
	for _, ref := range o.Owners {
		view.Claims = append(view.Claims, graph.Claim{Reference: ref})
	}
	facts.Owners, facts.UnreadOwners = g.owners(ctx, view)
	return facts
}

// readBudget limits the reads for one object.
type readBudget struct{ remaining, skipped int }

// owners returns the status of each owner reference, and the number of owners that were
// not read because there are too many.
func (g *Gatherer) owners(ctx context.Context, view graph.View) (owners []decide.Owner, unread int) {
	r := readBudget{remaining: maxReadsPerPass}
	for _, claim := range view.Claims {
		owners = append(owners, g.inOrder(view, g.owner(ctx, view, claim, &r)))
	}
	return owners, r.skipped
}

// deletionVersion returns the resourceVersion of an owner's deletion if it can be compared with those of other types: all
// that kube-apiserver serves itself.
func (g *Gatherer) deletionVersion(view graph.View, claim graph.Claim) uint64 {
	if resource, served := g.Catalog().Resource(view.Claim(claim.Reference).Kind); !served || !resource.Local {
		return 0
	}
	return claim.DeletionVersion
}

// DeletionVersion returns a resourceVersion in which an object was being deleted; 0 if it can't be compared with those of
// other types.
func (g *Gatherer) DeletionVersion(o graph.Object) uint64 {
	resource, served := g.Catalog().Preferred(o.Kind.GroupKind())
	if version, err := strconv.ParseUint(o.ResourceVersion, 10, 64); err == nil && served && resource.Local && o.Terminating {
		return version
	}
	return 0
}

// owner returns the status of one owner reference.
func (g *Gatherer) owner(ctx context.Context, view graph.View, claim graph.Claim, r *readBudget) decide.Owner {
	owner := decide.Owner{Reference: claim.Reference}
	if claim.State == graph.Orphaning && (!claim.Stale || view.Object.Terminating) {
		return g.orphaning(owner, view, claim)
	}
	if view.Object.Terminating {
		owner.Message = "not checked because the object itself is being deleted"
		return owner
	}
	if claim.OwnerNamespace != view.Object.Namespace {
		owner.ActualNamespace = claim.OwnerNamespace
	}
	at := view.Claim(claim.Reference)
	if at.UID == "" {
		owner.Message = "the owner reference has no UID"
		return owner
	}
	resource, served := g.Catalog().Resource(at.Kind)
	stale := claim.Stale && served // a type that is not served cannot be read
	switch {
	case claim.State == graph.ProvenAbsent && !stale:
		return absent(owner, claim.GoneAt, "a live read did not find it")
	case claim.State == graph.Gone && !stale && g.deletionProvesAbsence(claim, at.Kind, resource, served):
		owner.DeletionVersion = g.deletionVersion(view, claim)
		return absent(owner, claim.GoneAt, "its deletion was observed")
	case claim.State == graph.Present && served:
		owner.Status, owner.Message = decide.Present, "the watch shows it"
		return owner
	}
	switch {
	case !served:
		owner.Message = fmt.Sprintf("%s is not served", at.Kind.GroupVersion().WithKind(at.Kind.Kind))
		return owner
	case view.Object.Namespace == "" && resource.Namespaced:
		owner.Status = decide.Unresolvable
		owner.Message = fmt.Sprintf("a cluster-scoped object cannot have an owner of the namespaced type %s", at.Kind.Kind)
		if owner.ActualNamespace != "" {
			owner.Message += fmt.Sprintf("; the UID is that of an object in namespace %s", owner.ActualNamespace)
		}
		return owner
	}
	if !resource.Namespaced {
		at.Namespace = ""
	}
	if r.remaining == 0 {
		r.skipped++
		owner.Message = fmt.Sprintf("not read yet: at most %d owners are read per pass", maxReadsPerPass)
		return owner
	}
	r.remaining--
	result, err := g.Reader.Owner(ctx, view.Object.Namespace, at, resource)
	if err != nil { // including ctx.Err()
		owner.Message = err.Error()
		return owner
	}
	return g.ownerFrom(owner, at, resource, result)
}

// orphaning returns an owner that orphans its dependents, once its controller has observed that.
func (g *Gatherer) orphaning(owner decide.Owner, view graph.View, claim graph.Claim) decide.Owner {
	if g.Observed != nil && !g.Observed(graph.IDOf(claim.Reference.UID), view.Claim(claim.Reference).Kind.GroupKind()) {
		owner.Status, owner.Message = decide.Present, orphaningMessage+", and its controller has not observed that yet"
		return owner
	}
	owner.Status, owner.Message, owner.DeletionVersion = decide.Orphaning, orphaningMessage, g.deletionVersion(view, claim)
	return owner
}

// deletionProvesAbsence reports whether the observed deletion of an owner proves that a claim on it is
// absent. For a type of an aggregated API server it does not, as long as the type exists
// or discovery for it fails. Once the type is gone, the claim must have the version
// that was watched: whether another version had the same objects is unknown (G-36).
func (g *Gatherer) deletionProvesAbsence(claim graph.Claim, kind schema.GroupVersionKind, resource catalog.Resource, served bool) bool {
	if served {
		return resource.Local
	}
	last, known := g.Catalog().Preferred(kind.GroupKind())
	return claim.OwnerVersion == kind.Version && (!known || last.Local)
}

// orphaningMessage is the message for an owner that is orphaning.
const orphaningMessage = "it is being deleted with propagation policy Orphan"

func absent(owner decide.Owner, at time.Time, reason string) decide.Owner {
	owner.Status, owner.FoundAbsentAt, owner.Message = decide.Absent, at, reason
	return owner
}

// ownerFrom returns the status of an owner that was read.
func (g *Gatherer) ownerFrom(owner decide.Owner, at graph.Coordinates, resource catalog.Resource, result readResult) decide.Owner {
	now := g.Now()
	g.Observe(eventsOf(at, resource, result, now)...)
	if result.absent {
		return absent(owner, now, result.message)
	}
	owner.Unwatched = true
	switch o := result.object; {
	case o.Held: // the propagation policy is not decided yet
		owner.Status, owner.Message = decide.Present, result.message
	case o.Terminating && o.Orphan:
		owner.Status, owner.Message = decide.Orphaning, orphaningMessage
	case o.Terminating && o.Foreground:
		owner.Status, owner.Message = decide.Waiting, "it is being deleted in the foreground"
	default:
		owner.Status, owner.Message = decide.Present, result.message
	}
	return owner
}

// Refresh reads an object that differs from the graph, and passes on the result.
func (g *Gatherer) Refresh(ctx context.Context, o graph.Object) error {
	resource, ok := g.Catalog().Preferred(o.Kind.GroupKind())
	if !ok {
		return fmt.Errorf("read %s again: its type is not served", graph.Coordinates{Kind: o.Kind, Namespace: o.Namespace, Name: o.Name})
	}
	at := graph.Coordinates{UID: o.UID, Kind: resource.Version.GroupVersion().WithKind(o.Kind.Kind), Namespace: o.Namespace, Name: o.Name}
	result, err := g.Reader.ReadLive(ctx, at, resource)
	if err != nil {
		return err
	}
	g.Observe(eventsOf(at, resource, result, g.Now())...)
	return nil
}
