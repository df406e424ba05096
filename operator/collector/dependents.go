package collector

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/pager"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

// applyExceptions applies the exceptions of a propagation decision to an object's
// dependents, before the decision itself is carried out. It lists the dependents, since
// one that is not in the graph yet would be treated like the others.
func (c *Collector) applyExceptions(ctx context.Context, plan decide.Plan, evaluation evaluate.Result) error {
	owner, ok := decide.Target(plan.Action)
	if !ok || len(evaluation.Verdict.Dependents) == 0 || c.options.DryRun {
		return nil
	}
	switch action := plan.Action.(type) {
	case decide.Propagate:
	case decide.RemoveFinalizer:
		if action.Finalizer != graph.Hold {
			return nil
		}
	default:
		return nil // the decision is not carried out yet
	}
	for _, exception := range evaluation.Verdict.Dependents {
		kind := schema.GroupKind{Group: exception.Group, Kind: exception.Kind}
		if err := c.applyException(ctx, owner, kind, exception.Decision); err != nil {
			return fmt.Errorf("apply the exception for %s: %w", kind, err)
		}
	}
	return nil
}

// orphanDependents removes an owner's references from its dependents while the owner still
// has its hold, if they are to be orphaned. A client may delete the owner a second time,
// as people do if kubectl delete takes long: that removes the orphan finalizer, and
// dependents that still had their reference would be collected.
func (c *Collector) orphanDependents(ctx context.Context, plan decide.Plan) error {
	action, ok := plan.Action.(decide.RemoveFinalizer)
	owner := action.Object
	if !ok || action.Finalizer != graph.Hold || !owner.Terminating || !owner.Orphan || c.options.Companion || c.options.DryRun {
		return nil
	}
	for _, id := range c.store.Dependents(graph.IDOf(owner.UID)) {
		view, ok := c.store.Lookup(id)
		refs := referencesTo(owner, view.Object)
		if !ok || len(refs) == 0 {
			continue
		}
		if err := c.orphan(ctx, owner, view.Object, decide.OrphanedByOwner); err != nil {
			return fmt.Errorf("orphan a dependent: %w", err)
		}
	}
	return nil
}

// applyException applies an exception to an owner's dependents of one kind.
func (c *Collector) applyException(ctx context.Context, owner graph.Object, kind schema.GroupKind, decision hostabi.Decision) error {
	resource, ok := c.options.Types.Catalog().Preferred(kind)
	if !ok {
		absent, err := c.options.Types.Absent(ctx, kind)
		if err == nil && !absent {
			err = fmt.Errorf("its types are not discovered yet")
		}
		return err // a kind that isn't served has no objects
	}
	if !resource.Namespaced && owner.Namespace != "" {
		return nil // cluster-scoped objects have no namespaced owners (G-34)
	}
	client := c.options.Client.Resource(resource.Version).Namespace(owner.Namespace)
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return client.List(ctx, o) })
	return list.EachListItem(ctx, metav1.ListOptions{}, func(item runtime.Object) error {
		meta, ok := item.(*metav1.PartialObjectMetadata)
		if !ok {
			return fmt.Errorf("listed a %T", item)
		}
		return c.applyTo(ctx, owner, graph.ObjectOf(resource.GroupVersionKind(), meta), decision)
	})
}

// applyTo deletes a dependent that would be orphaned, or orphans one that would be deleted.
// A dependent with other owners only loses its reference.
func (c *Collector) applyTo(ctx context.Context, owner, dependent graph.Object, decision hostabi.Decision) error {
	refs := referencesTo(owner, dependent)
	switch {
	case len(refs) == 0:
		return nil
	case decision == hostabi.DecisionOrphan:
		return c.orphan(ctx, owner, dependent, decide.OverriddenByPolicy)
	case len(refs) != len(dependent.Owners):
		return c.dropReferences(ctx, unreadFacts(owner, dependent), refs, decide.OverriddenByPolicy)
	case decision == hostabi.DecisionDelete && !dependent.Terminating:
		return c.collect(ctx, dependent)
	default:
		return nil
	}
}

// collect deletes a dependent although its owner's other dependents are orphaned. That is
// decided as for an object without owners: a policy may keep it, and a finalizer that was
// set before decides about its own dependents (G-49).
func (c *Collector) collect(ctx context.Context, dependent graph.Object) error {
	id := graph.IDOf(dependent.UID)
	s := decide.Situation{Kind: decide.Ownerless, Facts: decide.Facts{Object: dependent}, References: dependent.Owners}
	if view, ok := c.store.Lookup(id); ok {
		s.Facts.Dependents = view.Dependents
	}
	for _, ref := range dependent.Owners {
		s.Facts.Owners = append(s.Facts.Owners, decide.Owner{
			Reference: ref, Status: decide.Absent, Message: "it is being deleted, and a policy deletes its dependents of this kind",
		})
	}
	d, err := c.Decider.Evaluate(ctx, s, nil, c.memories.Get(id))
	c.options.Recorder.RecordWithheld(d.Withheld...)
	switch {
	case err != nil:
		return err
	case d.Changed() != nil:
		return changedError(dependent)
	case d.Evaluation.Fault != nil:
		return fmt.Errorf("decide about %s %s: %w", dependent.Kind.Kind, dependent.Name, d.Evaluation.Fault)
	}
	plan := decide.Choose(s, d.Result)
	if _, deletes := plan.Action.(decide.Delete); !deletes { // its owner doesn't wait
		plan = decide.Plan{Reason: decide.KeptByPolicy, Action: decide.DropReferences{Object: dependent, References: dependent.Owners, Orphan: true}}
	} else {
		plan.Reason = decide.OverriddenByPolicy
	}
	return c.writeDependent(ctx, s.Facts, plan, d.Evaluation)
}

// orphan removes a dependent's references to an owner, and those to other owners that were deleted before: the owner
// that was deleted last keeps it.
func (c *Collector) orphan(ctx context.Context, owner, dependent graph.Object, why decide.Reason) error {
	refs := referencesTo(owner, dependent)
	if len(refs) == len(dependent.Owners) {
		return c.dropReferences(ctx, unreadFacts(owner, dependent), refs, why)
	}
	facts, ok := c.Gatherer.Gather(ctx, graph.IDOf(dependent.UID))
	if !ok || facts.Object.ResourceVersion != dependent.ResourceVersion {
		return changedError(dependent)
	}
	for i := range facts.Owners {
		if o := &facts.Owners[i]; o.Reference.UID == owner.UID {
			o.Status, o.Message, o.DeletionVersion = decide.Orphaning, orphaningMessage, c.Gatherer.DeletionVersion(owner)
		}
	}
	return c.dropReferences(ctx, facts, decide.Classify(facts).References, why)
}

const orphaningMessage = "it is being deleted, and a policy or a client orphans this dependent"

// unreadFacts returns the facts about a dependent of whose owners only one was read.
func unreadFacts(owner, dependent graph.Object) decide.Facts {
	facts := decide.Facts{Object: dependent}
	for _, ref := range dependent.Owners {
		o := decide.Owner{Reference: ref, Message: "not read"}
		if ref.UID == owner.UID {
			o.Status, o.Message = decide.Orphaning, orphaningMessage
		}
		facts.Owners = append(facts.Owners, o)
	}
	return facts
}

// dropReferences removes references of a dependent.
func (c *Collector) dropReferences(ctx context.Context, facts decide.Facts, refs []metav1.OwnerReference, why decide.Reason) error {
	plan := decide.Plan{Reason: why, Action: decide.DropReferences{Object: facts.Object, References: refs, Orphan: true}}
	return c.writeDependent(ctx, facts, plan, evaluate.Result{})
}

// writeDependent writes to a dependent because of its owner, and records that.
func (c *Collector) writeDependent(ctx context.Context, facts decide.Facts, plan decide.Plan, evaluation evaluate.Result) error {
	began := c.options.Now()
	result, err := c.write(ctx, plan.Action, causeOf(facts, plan, evaluation))
	if writer.IsWait(err) {
		return err
	}
	c.options.Recorder.Record(Outcome{Facts: facts, Plan: plan, Evaluation: evaluation, Result: result, Err: err, Duration: c.options.Now().Sub(began)})
	if err == nil && result == act.Changed {
		err = changedError(facts.Object)
	}
	return err
}

func changedError(o graph.Object) error {
	return fmt.Errorf("%s %s has changed in the meantime", o.Kind.Kind, o.Name)
}

// referencesTo returns an object's references to an owner.
func referencesTo(owner, dependent graph.Object) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for _, ref := range dependent.Owners {
		if ref.UID == owner.UID {
			refs = append(refs, ref)
		}
	}
	return refs
}
