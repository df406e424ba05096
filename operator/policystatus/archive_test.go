package policystatus

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/archivestore"
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/policyset/policysettest"
)

type noArchiver struct{}

func (noArchiver) Archive(context.Context, *policyset.Archive, *unstructured.Unstructured) (string, error) {
	return "", errors.New("nothing is archived here")
}

// archivePolicy returns a ClusterArchivePolicy for resources of the core group that is in use.
func archivePolicy(change func(*v1alpha1.ClusterArchivePolicy), resources ...string) *v1alpha1.ClusterArchivePolicy {
	a := &v1alpha1.ClusterArchivePolicy{ObjectMeta: policysettest.Meta("", "a")}
	a.Finalizers = []string{v1alpha1.InUseFinalizer}
	a.Spec.Resources = []v1alpha1.ResourceRule{{APIGroups: []string{""}, Resources: resources}}
	if change != nil {
		change(a)
	}
	return a
}

// archiving returns a fixture with an archive in a state; nil: without an archive.
func archiving(t *testing.T, store *archivestore.Health, a *v1alpha1.ClusterArchivePolicy) *fixture {
	t.Helper()
	s := policysettest.New(t, func(o *policysettest.Options) {
		if store != nil {
			o.Archiver = noArchiver{}
		}
	}, a).Settle()
	f := of(t, s)
	f.options.Progress = func(types.UID) Progress {
		return Progress{Pending: 2, Stalled: []v1alpha1.StalledObject{{Name: "o", Reason: "Error"}}}
	}
	if store != nil {
		f.options.Archive = &Archive{Store: &latest.Value[archivestore.Health]{}, Archived: func(types.UID) Archived { return Archived{Objects: 3, Bytes: 400, Missed: 1} }}
		f.options.Archive.Store.Store(*store)
	}
	return f
}

// archived describes the archive policy.
func (f *fixture) archived(v view) *v1alpha1.ArchivePolicyStatus {
	f.t.Helper()
	a := f.snapshot.Archives[0]
	s := archiveStatus(a.Object.DeepCopyObject().(client.Object))
	f.describeArchive(v, a, s)
	s.Reason = archiveSummary(s)
	return s
}

func TestArchiving_FollowsTheStore(t *testing.T) {
	onContinue := func(a *v1alpha1.ClusterArchivePolicy) { a.Spec.OnFailure = v1alpha1.OnFailureContinue }
	now := metav1.Now()
	removed := func(a *v1alpha1.ClusterArchivePolicy) { a.DeletionTimestamp = &now }
	for claim, c := range map[string]struct {
		store     *archivestore.Health
		change    func(*v1alpha1.ClusterArchivePolicy)
		resources []string
		is        metav1.ConditionStatus
		reason    string
		text      string
	}{
		"no archive":                  {nil, nil, []string{"configmaps"}, no, "NoStore", "start it with --archive"},
		"it was not tried yet":        {&archivestore.Health{}, nil, []string{"configmaps"}, unknown, "Starting", ""},
		"it works":                    {&archivestore.Health{State: archivestore.Ready}, nil, []string{"configmaps"}, yes, "Archiving", ""},
		"it fails":                    {&archivestore.Health{State: archivestore.Failing, Error: "disk full"}, nil, []string{"configmaps"}, no, "StoreFailing", "disk full; meanwhile the objects that it selects are kept"},
		"it fails, with Continue":     {&archivestore.Health{State: archivestore.Failing, Error: "disk full"}, onContinue, []string{"configmaps"}, no, "StoreFailing", "are deleted without being archived"},
		"an unknown state":            {&archivestore.Health{State: 9}, nil, []string{"configmaps"}, no, "StoreFailing", ""},
		"Secrets among others":        {&archivestore.Health{State: archivestore.Ready}, nil, []string{"configmaps", "secrets"}, yes, "SecretsNotArchived", "write recipients"},
		"only Secrets":                {&archivestore.Health{State: archivestore.Ready}, nil, []string{"secrets"}, no, "SecretsNotArchived", "write recipients"},
		"the policy is being deleted": {&archivestore.Health{State: archivestore.Ready}, removed, []string{"configmaps"}, no, "Removed", ""},
	} {
		t.Run(claim, func(t *testing.T) {
			f := archiving(t, c.store, archivePolicy(c.change, c.resources...))
			s := f.archived(installed())
			f.has(s.Conditions, v1alpha1.ConditionAccepted, yes, "Accepted", "spec is valid")
			f.has(s.Conditions, v1alpha1.ConditionArchiving, c.is, c.reason, c.text)
			if wrong := c.is == no || c.reason == reasonSecrets; wrong && s.Reason != c.reason {
				t.Errorf("the reason is %q, want %q", s.Reason, c.reason)
			}
		})
	}
}

func TestArchiving_StaysForAWhileUntilTheStoreWasTried(t *testing.T) {
	a := archivePolicy(nil, "configmaps")
	meta.SetStatusCondition(&a.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionArchiving, Status: yes, Reason: "Archiving"})
	f, v := archiving(t, &archivestore.Health{}, a), installed()
	v.since = time.Now()
	f.has(f.archived(v).Conditions, v1alpha1.ConditionArchiving, yes, "Archiving", "")
	v.since = time.Now().Add(-time.Minute)
	f.has(f.archived(v).Conditions, v1alpha1.ConditionArchiving, unknown, "Starting", "")
}

func TestArchiveStatus_Counts(t *testing.T) {
	f := archiving(t, &archivestore.Health{State: archivestore.Ready}, archivePolicy(nil, "configmaps"))
	s := f.archived(installed())
	if s.Archived != 3 || s.Bytes != 400 || s.Missed != 1 || s.Held != 2 || len(s.StalledObjects) != 1 || s.Reason != "Error" {
		t.Errorf("got %+v", s)
	}
	if s.Finalizer != "archive.cluster.gleaner.dev/a" || s.ObservedGeneration != 1 {
		t.Errorf("got %+v", s)
	}
	f.has(s.Conditions, v1alpha1.ConditionAttached, yes, "Attached", "")
}

func TestArchiveStatus_BoundsTheLastFailure(t *testing.T) {
	f := archiving(t, &archivestore.Health{State: archivestore.Ready}, archivePolicy(nil, "configmaps"))
	f.options.Archive.Archived = func(types.UID) Archived {
		return Archived{LastFailure: &v1alpha1.Failure{Message: strings.Repeat("ü", v1alpha1.MaxFailureMessage)}}
	}
	if got := f.archived(installed()).LastFailure; len(got.Message) > v1alpha1.MaxFailureMessage || !strings.HasSuffix(got.Message, "ü …") {
		t.Errorf("got %d bytes", len(got.Message))
	}
}

func TestAccepted_SaysWhatIsArchivedOnlyWhenGleanerDeletesIt(t *testing.T) {
	const text = "nodes and pods get no finalizer, and are archived only when Gleaner deletes them"
	f := archiving(t, &archivestore.Health{State: archivestore.Ready}, archivePolicy(nil, "configmaps", "pods", "nodes"))
	f.has(f.archived(installed()).Conditions, v1alpha1.ConditionAccepted, yes, "Accepted", text)
	f = archiving(t, &archivestore.Health{State: archivestore.Ready}, archivePolicy(func(a *v1alpha1.ClusterArchivePolicy) { a.Spec.DeletedBy = v1alpha1.DeletedByGleaner }, "pods"))
	s := f.archived(installed())
	f.has(s.Conditions, v1alpha1.ConditionAttached, no, "NotWanted", "deletedBy: Gleaner")
	if c := meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionAccepted); strings.Contains(c.Message, "finalizer") {
		t.Errorf("nothing gets a finalizer: %s", c.Message)
	}
}

func TestArchive_IsAttachedLateWhereItIsSaid(t *testing.T) {
	f := archiving(t, &archivestore.Health{State: archivestore.Ready}, archivePolicy(nil, "configmaps"))
	v := view{primary: true, admission: &admission.Status{Failed: admission.Failures{"gleaner-archive-a": errors.New("not served yet")}}}
	f.has(f.archived(v).Conditions, v1alpha1.ConditionAttached, yes, "Late", "not served yet")
}

func TestArchive_ProblemsAreAnnounced(t *testing.T) {
	f := archiving(t, nil, archivePolicy(nil, "configmaps"))
	s := f.archived(installed())
	if level, ok := announcement(nil, *meta.FindStatusCondition(s.Conditions, v1alpha1.ConditionArchiving)); !ok || level != "Warning" {
		t.Errorf("got %q, %t", level, ok)
	}
}
