package finalizers

import (
	"context"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

func TestDescribe_ArchiveFinalizerShowsStatus(t *testing.T) {
	since := metav1.NewTime(deleted.Time)
	failing := Archive{Kind: v1alpha1.KindClusterArchivePolicy, ObjectMeta: metav1.ObjectMeta{Name: "data"}}
	failing.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionArchiving, Status: metav1.ConditionFalse, Reason: "StoreFailing", Message: "disk full"}}
	stuck := Archive{Kind: v1alpha1.KindArchivePolicy, ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "data"}}
	stuck.Status.StalledObjects = []v1alpha1.StalledObject{{UID: "uid", Reason: "Error", Message: "too large", SinceTime: since}}
	b := &Resources{Archives: []Archive{failing, stuck}}
	for finalizer, want := range map[string]Finalizer{
		"archive.cluster.gleaner.dev/data": {Owner: "ClusterArchivePolicy data", WaitsFor: "the object to be archived", Reason: "StoreFailing", Error: "disk full"},
		"shop.archive.gleaner.dev/data":    {Owner: "ArchivePolicy shop/data", WaitsFor: "the object to be archived", Reason: "FinalizerError", Error: "too large"},
		"shop.archive.gleaner.dev/other":   {Owner: "the ArchivePolicy shop/other", WaitsFor: "an archive policy that does not exist, or could not be read"},
	} {
		got := b.Describe(secret(nil), finalizer)
		if got.Kind != Archiving || got.Owner != want.Owner || got.WaitsFor != want.WaitsFor || got.Reason != want.Reason || got.Error != want.Error {
			t.Errorf("%s: got %+v, want %+v", finalizer, got, want)
		}
		if !strings.Contains(got.Advice, "gleaner release secrets/keys -n shop --finalizer "+finalizer) {
			t.Errorf("%s: advice %q", finalizer, got.Advice)
		}
	}
	live := b.Describe(secret(func(o *metav1.ObjectMeta) { o.DeletionTimestamp = nil }), "archive.cluster.gleaner.dev/data")
	if live.WaitsFor != "the object to be deleted" || live.Reason != "" {
		t.Errorf("a live object: %+v", live)
	}
	if found := b.StuckObjects(); len(found) != 1 || !found[types.UID("uid")] {
		t.Errorf("stuck objects: %v", found)
	}
}

func TestDescribe_ArchivePolicyWaitsForItsObjects(t *testing.T) {
	o := secret(nil)
	o.Kind.Kind = v1alpha1.KindClusterArchivePolicy
	if h := (&Resources{}).Describe(o, v1alpha1.InUseFinalizer); !strings.Contains(h.WaitsFor, "not archived yet") || !strings.Contains(h.Advice, "gleaner release clusterarchivepolicy/keys") {
		t.Errorf("got %+v", h)
	}
}

func TestFromObjects_HasArchivePolicies(t *testing.T) {
	o := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"ttl": "1h"}}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.KindArchivePolicy))
	o.SetNamespace("shop")
	o.SetName("data")
	b, err := FromObjects([]*unstructured.Unstructured{o})
	if err != nil || len(b.Archives) != 1 || b.Archives[0].Finalizer() != "shop.archive.gleaner.dev/data" {
		t.Errorf("got %+v, %v", b, err)
	}
}

// without is a reader of an API server that does not serve some lists.
type without struct {
	client.Reader
	missing func(client.ObjectList) bool
}

func (w without) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	if w.missing(list) {
		return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "gleaner.dev", Kind: "Any"}}
	}
	return nil
}

func TestRead_ArchivePoliciesNeedNotBeInstalled(t *testing.T) {
	isArchive := func(l client.ObjectList) bool {
		switch l.(type) {
		case *v1alpha1.ArchivePolicyList, *v1alpha1.ClusterArchivePolicyList:
			return true
		default:
			return false
		}
	}
	if b := Read(t.Context(), without{missing: isArchive}); !b.Installed || len(b.Unread) != 0 {
		t.Errorf("got %+v", b)
	}
	if b := Read(t.Context(), without{missing: func(l client.ObjectList) bool { return !isArchive(l) }}); b.Installed {
		t.Errorf("without the others, got %+v", b)
	}
}
