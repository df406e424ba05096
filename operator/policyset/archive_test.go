package policyset_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/policyset/policysettest"
	"github.com/gleaner-dev/gleaner/operator/selection"
)

var (
	configMaps = schema.GroupResource{Resource: "configmaps"}
	secrets    = schema.GroupResource{Resource: "secrets"}
	pods       = schema.GroupResource{Resource: "pods"}
	widgets    = schema.GroupResource{Group: "example.com", Resource: "widgets"}
)

// archiver stores the names of the policies that it was called for.
type archiver struct{ called []string }

func (a *archiver) Archive(_ context.Context, of *policyset.Archive, _ *unstructured.Unstructured) (string, error) {
	a.called = append(a.called, of.Policy.String())
	return "stored", nil
}

// archivePolicy returns an ArchivePolicy, or a ClusterArchivePolicy if the namespace is "", that is
// in use, for resources of the core group.
func archivePolicy(namespace, name string, change func(*v1alpha1.ArchivePolicySpec), resources ...string) client.Object {
	meta := policysettest.Meta(namespace, name)
	meta.Finalizers = []string{v1alpha1.InUseFinalizer}
	spec := v1alpha1.ArchivePolicySpec{Resources: []v1alpha1.ResourceRule{{APIGroups: []string{""}, Resources: resources}}}
	if change != nil {
		change(&spec)
	}
	if namespace == "" {
		return &v1alpha1.ClusterArchivePolicy{ObjectMeta: meta, Spec: spec}
	}
	return &v1alpha1.ArchivePolicy{ObjectMeta: meta, Spec: spec}
}

// archivesOf returns the snapshot of resources, with an archive.
func archivesOf(t *testing.T, resources ...client.Object) *policyset.Snapshot {
	t.Helper()
	return policysettest.New(t, func(o *policysettest.Options) {
		o.Archiver = &archiver{}
		o.Rules.CheckRecipients = func(list []string) error {
			if slices.Contains(list, "bad") {
				return errors.New("recipients[0]: write a public key")
			}
			return nil
		}
	}, resources...).Settle()
}

func namesFor(s *policyset.Snapshot, r schema.GroupResource, namespace string) (names []string) {
	for a := range s.ArchivesFor(r, namespace) {
		names = append(names, a.Policy.String())
	}
	slices.Sort(names)
	return names
}

func TestArchivesFor_YieldsThePoliciesOfAResource(t *testing.T) {
	s := archivesOf(t,
		archivePolicy("", "all", func(s *v1alpha1.ArchivePolicySpec) {
			s.DeletedBy, s.Resources[0].APIGroups = v1alpha1.DeletedByGleaner, []string{"*"}
		}, "*"),
		archivePolicy("", "data", nil, "configmaps", "secrets", "pods"),
		archivePolicy("", "sealed", func(s *v1alpha1.ArchivePolicySpec) { s.Recipients = []string{"age1"} }, "secrets"),
		archivePolicy("shop", "own", nil, "configmaps"),
		archivePolicy("", "broken", func(s *v1alpha1.ArchivePolicySpec) { s.Recipients = []string{"bad"} }, "pods"),
	)
	for _, c := range []struct {
		resource  schema.GroupResource
		namespace string
		want      []string
	}{
		{configMaps, "shop", []string{"ArchivePolicy shop/own", "ClusterArchivePolicy all", "ClusterArchivePolicy data"}},
		{configMaps, "bank", []string{"ClusterArchivePolicy all", "ClusterArchivePolicy data"}},
		{secrets, "shop", []string{"ClusterArchivePolicy sealed"}}, // the others have no recipients
		{pods, "shop", []string{"ClusterArchivePolicy all", "ClusterArchivePolicy broken", "ClusterArchivePolicy data"}},
		{widgets, "", []string{"ClusterArchivePolicy all"}},
	} {
		if diff := cmp.Diff(c.want, namesFor(s, c.resource, c.namespace)); diff != "" {
			t.Errorf("%s in %q (-want +got):\n%s", c.resource, c.namespace, diff)
		}
	}
	if names := namesFor(nil, configMaps, "shop"); names != nil {
		t.Errorf("without a snapshot, got %v", names)
	}
}

func TestArchive_HasDefaults(t *testing.T) {
	s := archivesOf(t, archivePolicy("", "p", nil, "configmaps"), archivePolicy("shop", "p", func(s *v1alpha1.ArchivePolicySpec) {
		s.TTL, s.OnFailure = &metav1.Duration{Duration: time.Hour}, v1alpha1.OnFailureContinue
	}, "configmaps"))
	if a := s.Archives[1]; a.TTL != 168*time.Hour || a.Continue || !a.Problem.IsZero() {
		t.Errorf("got %+v", a)
	}
	if a := s.Archives[0]; a.TTL != time.Hour || !a.Continue {
		t.Errorf("got %+v", a)
	}
}

// finalizerOf returns the finalizer of the only archive policy.
func finalizerOf(t *testing.T, s *policyset.Snapshot) *policyset.Archive {
	t.Helper()
	if len(s.Archives) != 1 {
		t.Fatalf("there are %d archive policies", len(s.Archives))
	}
	return s.Archives[0]
}

func TestArchive_ServesAFinalizerOnWhatIsHeld(t *testing.T) {
	s := archivesOf(t, archivePolicy("shop", "p", nil, "configmaps", "secrets", "pods", "events"))
	a := finalizerOf(t, s)
	f := a.Finalizer
	if f == nil || len(s.Serving()) != 1 || s.Serving()[0] != f {
		t.Fatalf("it serves %v", s.Serving())
	}
	if f.Entry != "shop.archive.gleaner.dev/p" || !f.BuiltIn || !f.Attaches() || f.Withdraw || f.Deleting || f.RetryMax > time.Minute || f.ReleaseOnRemoval {
		t.Errorf("got %+v", f)
	}
	for r, held := range map[schema.GroupResource]bool{configMaps: true, secrets: false, pods: false, {Resource: "events"}: false} {
		if f.Selects(r) != held {
			t.Errorf("%s has the finalizer: %t", r, !held)
		}
	}
	if diff := cmp.Diff([]schema.GroupResource{pods, {Resource: "events"}}, a.WithoutHold()); diff != "" || !a.OmitsSecrets() {
		t.Errorf("without a hold (-want +got):\n%s", diff)
	}
	if done, err := f.Handler.Handle(t.Context(), &unstructured.Unstructured{}); done != "stored" || err != nil {
		t.Errorf("it is not handled by the archiver: %q, %v", done, err)
	}
}

func TestArchive_FinalizerIsWithdrawn(t *testing.T) {
	now := metav1.Now()
	gleaner := func(s *v1alpha1.ArchivePolicySpec) { s.DeletedBy = v1alpha1.DeletedByGleaner }
	removed := archivePolicy("", "p", nil, "configmaps")
	removed.SetDeletionTimestamp(&now)
	for claim, o := range map[string]client.Object{
		"once the policy is deleted":               removed,
		"once only Gleaner's deletes are archived": archivePolicy("", "p", gleaner, "configmaps"),
	} {
		if f := finalizerOf(t, archivesOf(t, o)).Finalizer; f == nil || !f.Withdraw || f.Attaches() || f.Handler == nil {
			t.Errorf("%s: got %+v", claim, f)
		}
	}
}

func TestArchive_WithoutHeldObjectsHasNoFinalizer(t *testing.T) {
	gleaner := func(s *v1alpha1.ArchivePolicySpec) { s.DeletedBy = v1alpha1.DeletedByGleaner }
	for claim, o := range map[string]client.Object{
		"deletedBy: Gleaner": archivePolicy("", "p", gleaner, "configmaps"), "only pods": archivePolicy("", "p", nil, "pods"),
		"only Secrets, without recipients": archivePolicy("", "p", nil, "secrets"),
	} {
		o.SetFinalizers(nil) // it was never in use
		if s := archivesOf(t, o); finalizerOf(t, s).Finalizer != nil || len(s.Serving()) != 0 {
			t.Errorf("%s: it serves %v", claim, s.Serving())
		}
	}
}

// Its resource could be deleted at once, and the finalizer would stay on objects forever.
func TestArchive_AttachesOnceItsResourceIsInUse(t *testing.T) {
	o := archivePolicy("", "p", nil, "configmaps")
	o.SetFinalizers(nil)
	if f := finalizerOf(t, archivesOf(t, o)).Finalizer; f == nil || f.Attaches() {
		t.Errorf("got %+v", f)
	}
}

func TestArchive_ThatCannotArchiveHoldsOrContinues(t *testing.T) {
	for onFailure, handled := range map[v1alpha1.OnFailure]bool{v1alpha1.OnFailureHold: false, v1alpha1.OnFailureContinue: true, "": false} {
		wrong := func(s *v1alpha1.ArchivePolicySpec) { s.Recipients, s.OnFailure = []string{"bad"}, onFailure }
		invalid := finalizerOf(t, archivesOf(t, archivePolicy("", "p", wrong, "configmaps")))
		hasProblem(t, invalid.Problem, v1alpha1.ConditionAccepted, "InvalidRecipient", "write a public key")
		if invalid.Finalizer.Attaches() == handled { // what is to be held needs the finalizer
			t.Errorf("%q: an invalid one attaches: %t", onFailure, invalid.Finalizer.Attaches())
		}
		without := policysettest.Settled(t, archivePolicy("", "p", func(s *v1alpha1.ArchivePolicySpec) { s.OnFailure = onFailure }, "configmaps"))
		noStore := finalizerOf(t, without)
		if !noStore.Problem.IsZero() || noStore.Finalizer.Attaches() || noStore.Finalizer.Withdraw {
			t.Errorf("%q: without an archive: %+v, %+v", onFailure, noStore.Problem, noStore.Finalizer)
		}
		for why, f := range map[string]*policyset.Archive{"write a public key": invalid, "--archive": noStore} {
			if !strings.Contains(f.Finalizer.NotReadyReason, why) || (f.Finalizer.Handler != nil) != handled {
				t.Errorf("%q: got %+v", onFailure, f.Finalizer)
			}
			if !handled {
				continue
			}
			if done, err := f.Finalizer.Handler.Handle(t.Context(), nil); err != nil || !strings.Contains(done, "not archived (onFailure: Continue)") || !strings.Contains(done, why) {
				t.Errorf("%q: got %q, %v", onFailure, done, err)
			}
		}
	}
}

func TestSelects_UnreadIsNotUnmatched(t *testing.T) {
	data, prod := map[string]string{"tier": "data"}, map[string]string{"env": "prod"}
	s := archivesOf(t,
		archivePolicy("", "p", func(s *v1alpha1.ArchivePolicySpec) {
			s.ObjectSelector, s.NamespaceSelector = &metav1.LabelSelector{MatchLabels: data}, &metav1.LabelSelector{MatchLabels: prod}
		}, "configmaps"))
	a, unknown, known := finalizerOf(t, s), policyset.Labels{}, policyset.KnownLabels
	seen := func(set labels.Set) selection.Selection { return s.Selectors.Scope(configMaps, "shop").Evaluate(set) }
	for claim, c := range map[string]struct {
		object    policyset.Labels
		seen      selection.Selection // of the same object
		namespace policyset.Labels
		want      policyset.Match
	}{
		"both match":                         {known(data), seen(data), known(prod), policyset.Matched},
		"the namespace is unknown":           {known(data), seen(data), unknown, policyset.MatchUnknown},
		"the object is unknown":              {unknown, selection.Selection{}, known(prod), policyset.MatchUnknown},
		"both are unknown":                   {unknown, selection.Selection{}, unknown, policyset.MatchUnknown},
		"the object does not, one unknown":   {known(nil), seen(nil), unknown, policyset.NotMatched},
		"the namespace doesn't, one unknown": {unknown, selection.Selection{}, known(nil), policyset.NotMatched},
		"the namespace does not":             {known(data), seen(data), known(nil), policyset.NotMatched},
	} {
		if got := a.Selects(c.object, c.namespace); got != c.want {
			t.Errorf("%s: got %d, want %d", claim, got, c.want)
		}
		if got := s.SelectsSeen(a, configMaps, graph.Object{Namespace: "shop", Selection: c.seen}, c.namespace); got != c.want {
			t.Errorf("%s, as seen: got %d, want %d", claim, got, c.want)
		}
	}
}

func TestSelects_WithoutSelectorsNothingHasToBeKnown(t *testing.T) {
	s := archivesOf(t, archivePolicy("", "p", func(s *v1alpha1.ArchivePolicySpec) { s.ObjectSelector = &metav1.LabelSelector{} }, "configmaps"))
	a := finalizerOf(t, s)
	if a.Selects(policyset.Labels{}, policyset.Labels{}) != policyset.Matched || s.SelectsSeen(a, configMaps, graph.Object{}, policyset.Labels{}) != policyset.Matched {
		t.Error("it is not known to match")
	}
}
