package modules

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
)

// InUse is the finalizer of Finalizers and ClusterFinalizers themselves, which stay
// until their onRemoval is done, and of their modules.
const InUse = "gleaner.dev/in-use"

// Progress is how a finalizer gets on.
type Progress struct {
	Pending  int // objects that are being deleted and have it
	Released int // objects that it was taken off
	Stuck    []Stuck

	// Carriers are the objects that have it, being deleted or not, if somebody has
	// looked since the resource was deleted.
	Carriers int
	Counted  bool
}

// Stuck is an object that gets no further.
type Stuck struct {
	APIVersion, Kind, Namespace, Name string
	UID                               types.UID
	Reason, Message                   string
	Since                             time.Time
	NextRetry, Deadline               time.Time // zero: none
}

// reportFinalizers writes the status of finalizers that says something else by now,
// and does what their own removal waits for.
func (k *Keeper) reportFinalizers(ctx context.Context, b *build) {
	if !k.options.Leads() {
		return
	}
	for _, f := range b.finalizers {
		progress := k.options.Progress(f.finalizer.UID)
		if err := k.guard(ctx, f, progress); err != nil && ctx.Err() == nil {
			k.options.Log.Error(err, "Could not keep a finalizer's resource", "finalizer", f.policy.String())
		}
		if brief(f.loading) {
			continue
		}
		k.write(ctx, f.object, f.kind, &f.status.Conditions, func() {
			k.describeFinalizer(f, progress)
			f.status.Reason = summaryOf(f.status)
		})
	}
	if err := k.guardModules(ctx, b); err != nil && ctx.Err() == nil {
		k.options.Log.Error(err, "Could not keep the modules of finalizers")
	}
}

// guard keeps the resource for as long as objects wait for it, and lets it go then.
func (k *Keeper) guard(ctx context.Context, f *finalizerState, progress Progress) error {
	switch {
	case !f.finalizer.Removed && f.policy.Enforce:
		return k.setInUse(ctx, f.object, true)
	case f.finalizer.Removed && progress.Counted && progress.Carriers == 0 && k.late[""] == nil: // or it would still be put on others
		return k.setInUse(ctx, f.object, false)
	default:
		return nil
	}
}

// guardModules keeps the modules of finalizers: a namespace that is deleted would
// take them along before the objects that wait for them.
func (k *Keeper) guardModules(ctx context.Context, b *build) error {
	used := map[string]bool{}
	for _, f := range b.finalizers {
		used[f.policy.Module] = used[f.policy.Module] || f.policy.Enforce
	}
	var all error
	for _, m := range b.modules {
		if removed := m.object.GetDeletionTimestamp() != nil; used[m.name()] && removed {
			continue // it has it, or it is too late
		}
		all = errors.Join(all, k.setInUse(ctx, m.object, used[m.name()]))
	}
	return all
}

// setInUse puts our finalizer on a resource of ours, or takes it off.
func (k *Keeper) setInUse(ctx context.Context, o client.Object, want bool) error {
	finalizers := slices.Clone(o.GetFinalizers())
	if slices.Contains(finalizers, InUse) == want {
		return nil
	}
	if want {
		finalizers = append(finalizers, InUse)
	} else {
		finalizers = slices.DeleteFunc(finalizers, func(name string) bool { return name == InUse })
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": o.GetUID(), "resourceVersion": o.GetResourceVersion(), "finalizers": finalizers,
	}})
	if err != nil {
		return err
	}
	patched := o.DeepCopyObject().(client.Object)
	err = k.client.Patch(ctx, patched, client.RawPatch(types.MergePatchType, body))
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		k.poke() // it has changed: it is read anew
		return nil
	}
	if err != nil {
		return fmt.Errorf("write finalizer %s of %s: %w", InUse, o.GetName(), err)
	}
	o.SetFinalizers(finalizers)
	o.SetResourceVersion(patched.GetResourceVersion())
	return nil
}

// describeFinalizer says in the status what became of a finalizer.
func (k *Keeper) describeFinalizer(f *finalizerState, progress Progress) {
	s := f.status
	s.ObservedGeneration, s.Finalizer = f.object.GetGeneration(), f.finalizer.Entry
	s.Digest, s.Engine, s.ABI = f.policy.Digest, f.engine, ""
	if f.policy.Asker != nil {
		s.ABI = hostabi.Version
	}
	s.Pending, s.Released, s.StuckCount, s.Stuck = int64(progress.Pending), int64(progress.Released), int64(len(progress.Stuck)), nil
	for _, stuck := range progress.Stuck[:min(len(progress.Stuck), v1alpha1.MaxStuck)] {
		s.Stuck = append(s.Stuck, v1alpha1.StuckObject{
			APIVersion: stuck.APIVersion, Kind: stuck.Kind, Namespace: stuck.Namespace, Name: stuck.Name, UID: string(stuck.UID),
			Reason: stuck.Reason, Message: stuck.Message, Since: metav1.NewTime(stuck.Since).Rfc3339Copy(),
			NextRetry: timeOf(stuck.NextRetry), Deadline: timeOf(stuck.Deadline),
		})
	}
	set := setter(&s.Conditions, f.object)
	const meanwhile = "; meanwhile the objects that have the finalizer are kept"
	k.readiness(&f.asking, set, meanwhile)
	withheld, absent := k.withheld(&f.asking, max(withheldLife, f.finalizer.RetryMax+time.Minute)), k.notGoverned(&f.asking)
	switch {
	case f.finalizer.Removed && f.finalizer.FreeAtRemoval:
		set(v1alpha1.ConditionEnforcing, true, "Releasing", "it is being deleted, and its finalizer taken off all objects (onRemoval: Release)")
	case f.finalizer.Removed && !f.policy.Enforce && !slices.Contains(f.object.GetFinalizers(), InUse):
		set(v1alpha1.ConditionEnforcing, false, "Removed", "it is being deleted, and objects that have the finalizer keep it: it was never in force")
	case f.finalizer.Removed:
		set(v1alpha1.ConditionEnforcing, f.policy.Enforce && !f.problem.is(), "Removed", fmt.Sprintf("it is being deleted, and stays until no object has "+
			"the finalizer any more, which %d have (onRemoval: Hold): delete those objects, or set onRemoval: Release", progress.Carriers))
	case !f.policy.Enforce:
		set(v1alpha1.ConditionEnforcing, false, "Monitor", "it asks and records, and objects that have the finalizer keep it: write mode: Enforce to let them go")
	case f.problem.is():
		set(v1alpha1.ConditionEnforcing, false, "NotReady", "it can't be asked"+meanwhile)
	case absent.is():
		set(v1alpha1.ConditionEnforcing, false, absent.reason, absent.message)
	case withheld != "":
		set(v1alpha1.ConditionEnforcing, false, reasonWithheld, keptUnseen+withheld)
	default:
		set(v1alpha1.ConditionEnforcing, true, "Enforcing", "it is done as it decides")
	}
	k.describeAttached(f, set)
}

func (k *Keeper) describeAttached(f *finalizerState, set func(string, bool, string, string)) {
	switch {
	case !f.spec.Attach:
		set(v1alpha1.ConditionAttached, false, "NotWanted", "only objects are served on which somebody has put the finalizer: write attach: true to have it put on all")
	case !f.finalizer.Attaches():
		set(v1alpha1.ConditionAttached, false, "NotEnforcing", "it is put on objects once decisions are carried out")
	case f.key.Namespace == "" && k.late.of(attachPrefix+f.key.Name) != nil:
		set(v1alpha1.ConditionAttached, true, "Late", "it is put on objects only after they were created: "+k.late.of(attachPrefix+f.key.Name).Error())
	case f.key.Namespace != "":
		set(v1alpha1.ConditionAttached, true, "AfterCreation", "it is put on objects right after they were created")
	default:
		set(v1alpha1.ConditionAttached, true, "Attached", "it is put on objects as they are created, and on those that are there")
	}
}

func timeOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	at := metav1.NewTime(t).Rfc3339Copy()
	return &at
}
