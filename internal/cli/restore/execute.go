package restore

import (
	"cmp"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/restore"
)

// executor carries out a plan, one step after the other. A step that fails stops those that depend
// on its object, and no others.
type executor struct {
	cluster
	dryRun        bool // by the API server
	restoreStatus bool
	progress      func(done int, next restore.Key)
	restored      func(Item) // called after each create

	report  *Report
	current map[types.UID]types.UID          // by former UID
	created map[string]struct{}              // namespaces
	virtual map[schema.GroupKind]struct{}    // types that a dry run would define
	status  map[schema.GroupVersionKind]bool // types with a status that is restored
}

func (e *executor) init() {
	e.current = map[types.UID]types.UID{}
	e.created = map[string]struct{}{}
	e.virtual = map[schema.GroupKind]struct{}{}
	e.status = map[schema.GroupVersionKind]bool{}
}

// run carries out a plan until the context ends: a step that has begun is finished, so that the
// report is complete.
func (e *executor) run(ctx context.Context, plan restore.Plan) {
	e.init()
	for _, x := range plan.Adopted {
		e.current[x.FormerUID] = x.CurrentUID
	}
	for _, x := range plan.Existing {
		e.current[x.FormerUID] = x.CurrentUID
		if !e.dryRun {
			e.completeExisting(context.WithoutCancel(ctx), x)
		}
	}
	for i, step := range plan.Steps {
		if ctx.Err() != nil {
			for _, left := range plan.Steps[i:] {
				e.report.Remaining = append(e.report.Remaining, itemOf(left.Key, left.FormerUID))
			}
			return
		}
		e.progress(i, step.Key)
		e.step(context.WithoutCancel(ctx), step)
	}
}

// step creates an object, and writes what follows.
func (e *executor) step(ctx context.Context, step restore.Step) {
	item := itemOf(step.Key, step.FormerUID)
	o, err := step.Object(e.current)
	if err != nil {
		e.fail(item, "was not restored: its owner was not")
		return
	}
	if reason := e.unverifiable(step.Key); reason != "" {
		e.current[step.FormerUID] = step.FormerUID
		e.report.Unchecked = append(e.report.Unchecked, item.with(reason))
		return
	}
	created, err := e.createObject(ctx, o)
	switch {
	case apierrors.IsAlreadyExists(err):
		e.taken(ctx, step, o)
		return
	case err != nil:
		e.fail(item, err.Error())
		return
	}
	item.UID = created.GetUID()
	e.current[step.FormerUID] = cmp.Or(item.UID, step.FormerUID) // a dry run may assign none
	e.report.Restored = append(e.report.Restored, item)
	e.restored(item)
	e.noteCreated(ctx, step.Key, created)
	if !e.dryRun {
		e.complete(ctx, item, step.After, created)
	}
}

func (e *executor) fail(item Item, message string) {
	e.report.Failures = append(e.report.Failures, item.with(message))
}

// createObject creates an object. In a namespace that was just restored, Pods are rejected until its
// service account is created.
func (e *executor) createObject(ctx context.Context, o *unstructured.Unstructured) (created *unstructured.Unstructured, err error) {
	_, fresh := e.created[o.GetNamespace()]
	if !e.dryRun && o.GetKind() == "Pod" {
		delete(e.created, o.GetNamespace()) // what rejects the next one is something else
	}
	err = retry(ctx, func() error {
		created, err = e.create(ctx, o, e.dryRun)
		return err
	}, func(err error) bool { return fresh && o.GetKind() == "Pod" && apierrors.IsForbidden(err) })
	return created, err
}

// unverifiable returns why the API server can't check an object in a dry run.
func (e *executor) unverifiable(key restore.Key) string {
	if !e.dryRun {
		return ""
	}
	if _, ok := e.created[key.Namespace]; ok && key.Namespace != "" {
		return "could not be checked by the API server: its namespace has to be restored first"
	}
	if _, ok := e.virtual[key.GroupKind]; ok {
		return "could not be checked by the API server: its CustomResourceDefinition has to be restored first"
	}
	return ""
}

// noteCreated notes what later steps depend on, and waits for the types of a definition.
func (e *executor) noteCreated(ctx context.Context, key restore.Key, created *unstructured.Unstructured) {
	switch key.GroupKind {
	case schema.GroupKind{Kind: "Namespace"}:
		e.created[key.Name] = struct{}{}
	case schema.GroupKind{Group: definitions.Group, Kind: "CustomResourceDefinition"}:
		if e.dryRun {
			group, _, _ := unstructured.NestedString(created.Object, "spec", "group")
			kind, _, _ := unstructured.NestedString(created.Object, "spec", "names", "kind")
			e.virtual[schema.GroupKind{Group: group, Kind: kind}] = struct{}{}
			return
		}
		if err := e.awaitServed(ctx, created); err != nil {
			e.warn(itemOf(key, ""), "was restored, and "+err.Error()+": its objects may fail; run the command again")
		}
	}
}

func (e *executor) warn(item Item, message string) {
	e.report.Warnings = append(e.report.Warnings, item.with(message))
}

// taken handles an object of the same name that was created since the plan was made: by another run
// of this restore, by the object's restored controller, or by others.
func (e *executor) taken(ctx context.Context, step restore.Step, o *unstructured.Unstructured) {
	item := itemOf(step.Key, step.FormerUID)
	live, err := e.get(ctx, o)
	switch {
	case err != nil:
		e.fail(item, "an object of this name was created meanwhile, and could not be read: "+err.Error())
	case step.Restores(live):
		item.UID = live.GetUID()
		e.current[step.FormerUID] = item.UID
		e.report.Existing = append(e.report.Existing, item)
	case sameController(live, o):
		e.current[step.FormerUID] = live.GetUID()
		e.report.Left = append(e.report.Left, item.with("is left as its restored controller has created it"))
	default:
		e.fail(item, fmt.Sprintf("an object of this name was created meanwhile, with UID %s", live.GetUID()))
	}
}

func sameController(live, o *unstructured.Unstructured) bool {
	now, wanted := metav1.GetControllerOf(live), metav1.GetControllerOf(o)
	return now != nil && wanted != nil && now.UID == wanted.UID
}

// complete writes what follows the creation of an object. What fails is a warning: the object is
// restored.
func (e *executor) complete(ctx context.Context, item Item, after restore.FollowUp, current *unstructured.Unstructured) {
	if after.Volume != "" {
		if err := e.rebind(ctx, after.Volume, item.FormerUID, item.UID); err != nil {
			e.warn(item, fmt.Sprintf("waits for its volume %s, which still refers to the former claim: %v; set spec.claimRef.uid of the volume to %s", after.Volume, err, item.UID))
		}
	}
	wanted, ok := after.Status(current)
	if !e.restoreStatus || !ok || !e.statusRestored(ctx, item, current.GroupVersionKind()) {
		return
	}
	if status, _, _ := unstructured.NestedMap(current.Object, "status"); len(status) != 0 {
		return // its controller has set it since
	}
	if err := e.updateStatus(ctx, wanted); err != nil && !apierrors.IsConflict(err) {
		e.warn(item, "is restored without its status: "+err.Error())
	}
}

// completeExisting writes what an interrupted run has left out.
func (e *executor) completeExisting(ctx context.Context, x restore.Existing) {
	item := itemOf(x.Key, x.FormerUID)
	item.UID = x.CurrentUID
	if x.After.Volume != "" || e.restoreStatus {
		live := e.liveAt(ctx, x.Key, "")
		if live == nil || live.Presence != restore.Present || live.Object.GetUID() != x.CurrentUID {
			return
		}
		e.complete(ctx, item, x.After, live.Object)
	}
}

// statusRestored reports whether the status of a type is restored.
func (e *executor) statusRestored(ctx context.Context, item Item, gvk schema.GroupVersionKind) bool {
	has, known := e.status[gvk]
	if !known {
		var err error
		if has, err = e.hasStatus(ctx, gvk); err != nil {
			e.warn(item, "is restored without its status: "+err.Error())
		}
		e.status[gvk] = has
	}
	return has
}
