package policystatus

import (
	"context"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/archivestore"
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/policyset"
)

// Archived is what was archived for an archive policy since the operator started.
type Archived struct {
	Objects, Bytes int64
	Missed         int64 // objects that were let go without, as onFailure: Continue says
	LastFailure    *v1alpha1.Failure
}

// Archive is what is observed of the archive.
type Archive struct {
	Store *latest.Value[archivestore.Health]

	// Archived returns what was archived for a policy, by the UID of its resource.
	Archived func(types.UID) Archived
}

// store returns the archive as it was observed last; false if there is no archive.
func (w *Writer) store() (s archivestore.Health, exists bool) {
	if w.options.Archive == nil {
		return s, false
	}
	s, _ = w.options.Archive.Store.Load()
	return s, true
}

// describeArchive sets the status of an archive policy.
func (w *Writer) describeArchive(v view, a *policyset.Archive, s *v1alpha1.ArchivePolicyStatus) {
	s.ObservedGeneration, s.Finalizer, s.Held, s.StalledObjects = a.Object.GetGeneration(), "", 0, nil
	if f := a.Finalizer; f != nil {
		progress := w.options.Progress(f.UID)
		s.Finalizer, s.Held = f.Entry, int64(progress.Pending)
		s.StalledObjects = progress.Stalled[:min(len(progress.Stalled), v1alpha1.MaxStalledObjects)]
	}
	if w.options.Archive != nil {
		archived := w.options.Archive.Archived(a.Object.GetUID())
		s.Archived, s.Bytes, s.Missed, s.LastFailure = archived.Objects, archived.Bytes, archived.Missed, boundedFailure(archived.LastFailure)
	}
	to := setterOf(&s.Conditions, a.Object)
	w.describeArchiveAccepted(a, to)
	w.describeArchiving(v, a, to)
	describeArchiveAttached(v, a, to)
}

// boundedFailure returns a failure whose message is not larger than the API server accepts.
func boundedFailure(f *v1alpha1.Failure) *v1alpha1.Failure {
	if f == nil || len(f.Message) <= v1alpha1.MaxFailureMessage {
		return f
	}
	const more = " …"
	text := strings.ToValidUTF8(f.Message[:v1alpha1.MaxFailureMessage-len(more)], "") + more
	return &v1alpha1.Failure{Time: f.Time, Message: text}
}

// describeArchiveAccepted sets whether the spec of an archive policy is valid.
func (w *Writer) describeArchiveAccepted(a *policyset.Archive, to setter) {
	absent, message := w.notGoverned(&a.Declaration), "spec is valid"
	if list := a.WithoutHold(); len(list) != 0 && a.Spec.DeletedBy != v1alpha1.DeletedByGleaner {
		var names []string
		for _, r := range list {
			names = append(names, r.String())
		}
		slices.Sort(names)
		message += "; " + strings.Join(names, " and ") + " get no finalizer, and are archived only when Gleaner deletes them"
	}
	switch {
	case !a.Problem.IsZero():
		to.set(v1alpha1.ConditionAccepted, false, a.Problem.Reason, a.Problem.Message)
	case !absent.IsZero():
		to.set(v1alpha1.ConditionAccepted, true, absent.Reason, "spec is valid, but "+absent.Message)
	default:
		to.set(v1alpha1.ConditionAccepted, true, "Accepted", message)
	}
}

const addRecipients = "since they would not be encrypted: write recipients"

// describeArchiving sets whether what a policy selects is archived.
func (w *Writer) describeArchiving(v view, a *policyset.Archive, to setter) {
	store, exists := w.store()
	absent := w.notGoverned(&a.Declaration)
	switch {
	case !a.Problem.IsZero():
		to.set(v1alpha1.ConditionArchiving, false, "NotAccepted", "nothing is archived"+unarchived(a))
	case !exists:
		to.set(v1alpha1.ConditionArchiving, false, "NoStore", policyset.NoStore)
	case a.Object.GetDeletionTimestamp() != nil:
		to.set(v1alpha1.ConditionArchiving, false, "Removed", "it is being deleted: what is being deleted already is still archived, and other objects lose its finalizer")
	case !absent.IsZero():
		to.set(v1alpha1.ConditionArchiving, false, absent.Reason, absent.Message)
	case a.OmitsSecrets() && onlySecrets(a):
		to.set(v1alpha1.ConditionArchiving, false, reasonSecrets, "Secrets are not archived, "+addRecipients)
	case store.State == archivestore.Starting:
		v.describeStarting(to)
	case store.State != archivestore.Ready:
		to.set(v1alpha1.ConditionArchiving, false, "StoreFailing", "the archive accepts no objects: "+store.Error+unarchived(a))
	case a.OmitsSecrets():
		to.set(v1alpha1.ConditionArchiving, true, reasonSecrets, "objects are archived before they are deleted, except for Secrets, "+addRecipients)
	default:
		to.set(v1alpha1.ConditionArchiving, true, "Archiving", "objects are archived before they are deleted")
	}
}

// describeStarting sets Archiving until the archive was tried: what was written stays for a while.
func (v view) describeStarting(to setter) {
	if time.Since(v.since) < installTimeout && meta.FindStatusCondition(*to.conditions, v1alpha1.ConditionArchiving) != nil {
		return
	}
	to.setStatus(v1alpha1.ConditionArchiving, metav1.ConditionUnknown, "Starting", "the archive is being opened")
}

// unarchived says what happens to objects that are not archived.
func unarchived(a *policyset.Archive) string {
	if a.Continue {
		return "; meanwhile objects are deleted without being archived (onFailure: Continue)"
	}
	return "; meanwhile the objects that it selects are kept (onFailure: Hold)"
}

// onlySecrets reports whether a policy selects nothing else.
func onlySecrets(a *policyset.Archive) bool {
	for _, rule := range a.Policy.Rules {
		named := rule.NamedResources()
		if len(named) != len(rule.Groups)*len(rule.Resources) {
			return false // by *
		}
		for _, r := range named {
			if a.Archives(r) {
				return false
			}
		}
	}
	return true
}

// describeArchiveAttached sets whether the finalizer of an archive policy is added to objects.
func describeArchiveAttached(v view, a *policyset.Archive, to setter) {
	switch {
	case a.Spec.DeletedBy == v1alpha1.DeletedByGleaner:
		to.set(v1alpha1.ConditionAttached, false, "NotWanted", "its finalizer is added to no object (deletedBy: Gleaner)")
	case a.Finalizer == nil || !a.Finalizer.Attaches():
		to.set(v1alpha1.ConditionAttached, false, "NotArchiving", "its finalizer is added to objects once they are archived")
	case a.Key.Namespace != "":
		to.set(v1alpha1.ConditionAttached, true, "AfterCreation", "its finalizer is added to objects right after they were created: "+
			"one that is deleted before that is not archived, unless Gleaner deletes it")
	case v.admission == nil: // not known yet
	case v.admission.Failed.Of(admission.AttachName(&a.Declaration)) != nil:
		to.set(v1alpha1.ConditionAttached, true, "Late", "its finalizer is added to objects only after they were created: "+
			v.admission.Failed.Of(admission.AttachName(&a.Declaration)).Error())
	default:
		to.set(v1alpha1.ConditionAttached, true, "Attached", "its finalizer is added to objects as they are created, and to those that exist")
	}
}

// reportArchives writes the status of archive policies.
func (w *Writer) reportArchives(ctx context.Context, s *policyset.Snapshot, v view) {
	for _, a := range s.Archives {
		w.write(ctx, a.Object, a.Kind, func(o client.Object) {
			status := archiveStatus(o)
			w.describeArchive(v, a, status)
			status.Reason = archiveSummary(status)
		})
	}
}
