package policystatus

import (
	"fmt"
	"slices"
	"time"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/policyset"
)

// keptWithheld begins the message about objects that are kept because they may not be read.
const keptWithheld = "objects are kept that it can't decide about: "

// describeFinalizer sets the status of a finalizer.
func (w *Writer) describeFinalizer(v view, f *policyset.Finalizer, progress Progress, s *v1alpha1.FinalizerStatus) {
	s.ObservedGeneration, s.Finalizer = f.Object.GetGeneration(), f.Finalizer.Entry
	s.Digest, s.Engine, s.ABI = f.Policy.Digest, f.Engine, ""
	s.Needs = needs(&f.Declaration)
	if f.Policy.Evaluator != nil {
		s.ABI = hostabi.Version
	}
	s.Pending, s.Released, s.Stalled = int64(progress.Pending), int64(progress.Released), int64(len(progress.Stalled))
	s.StalledObjects = progress.Stalled[:min(len(progress.Stalled), v1alpha1.MaxStalledObjects)]
	to := setterOf(&s.Conditions, f.Object)
	const meanwhile = "; meanwhile the objects that have the finalizer are kept"
	w.describeReadiness(&f.Declaration, to, meanwhile)
	w.describeServing(f, progress, to, meanwhile)
	describeAttached(v, f, to)
}

// describeServing sets whether the decisions of a finalizer's module are carried out.
func (w *Writer) describeServing(f *policyset.Finalizer, progress Progress, to setter, meanwhile string) {
	absent := w.notGoverned(&f.Declaration)
	withheld := w.options.Observations.withheldFrom(&f.Declaration, max(withheldLife, f.Finalizer.RetryMax+time.Minute))
	switch {
	case f.Finalizer.Deleting && f.Finalizer.ReleaseOnRemoval:
		to.set(v1alpha1.ConditionEnforcing, true, "Releasing", "it is being deleted, and its finalizer removed from all objects (onRemoval: Release)")
	case f.Finalizer.Deleting && !f.Policy.Enforce && !slices.Contains(f.Object.GetFinalizers(), v1alpha1.InUseFinalizer):
		to.set(v1alpha1.ConditionEnforcing, false, "Removed", "it is being deleted, and objects that have the finalizer keep it: it was never in force")
	case f.Finalizer.Deleting:
		to.set(v1alpha1.ConditionEnforcing, f.Policy.Enforce && f.Problem.IsZero(), "Removed", fmt.Sprintf("it is being deleted, and stays until no object has "+
			"the finalizer any more, which %d have (onRemoval: Hold): delete those objects, or set onRemoval: Release", progress.Carriers))
	case !f.Policy.Enforce:
		to.set(v1alpha1.ConditionEnforcing, false, "Monitor", "it decides and records, and objects that have the finalizer keep it: write mode: Enforce to remove it")
	case !f.Problem.IsZero():
		to.set(v1alpha1.ConditionEnforcing, false, "NotReady", "it can't be evaluated"+meanwhile)
	case !absent.IsZero():
		to.set(v1alpha1.ConditionEnforcing, false, absent.Reason, absent.Message)
	case withheld != "":
		to.set(v1alpha1.ConditionEnforcing, false, reasonWithheld, keptWithheld+withheld)
	default:
		to.set(v1alpha1.ConditionEnforcing, true, "Enforcing", "its decisions are carried out")
	}
}

// describeAttached sets whether the finalizer is added to objects.
func describeAttached(v view, f *policyset.Finalizer, to setter) {
	switch {
	case !f.Spec.Attach:
		to.set(v1alpha1.ConditionAttached, false, "NotWanted", "it is added to no object (attach: false): objects that have it are served, and attach: true adds it to all")
	case !f.Finalizer.Attaches():
		to.set(v1alpha1.ConditionAttached, false, "NotEnforcing", "it is added to objects once decisions are carried out")
	case f.Key.Namespace != "":
		to.set(v1alpha1.ConditionAttached, true, "AfterCreation", "it is added to objects right after they were created")
	case v.admission == nil: // not known yet
	case v.admission.Failed.Of(admission.AttachName(&f.Declaration)) != nil:
		to.set(v1alpha1.ConditionAttached, true, "Late", "it is added to objects only after they were created: "+
			v.admission.Failed.Of(admission.AttachName(&f.Declaration)).Error())
	default:
		to.set(v1alpha1.ConditionAttached, true, "Attached", "it is added to objects as they are created, and to those that exist")
	}
}
