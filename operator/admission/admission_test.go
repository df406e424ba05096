package admission

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/policyset/policysettest"
	"github.com/gleaner-dev/gleaner/policies"
)

type noArchiver struct{}

func (noArchiver) Archive(context.Context, *policyset.Archive, *unstructured.Unstructured) (string, error) {
	return "", errors.New("nothing is archived here")
}

// A ClusterFinalizer and a ClusterArchivePolicy may have the same name.
func TestAdditions_HaveTheFinalizersOfArchivePolicies(t *testing.T) {
	a := &v1alpha1.ClusterArchivePolicy{ObjectMeta: policysettest.Meta("", "a"), Spec: v1alpha1.ArchivePolicySpec{
		Resources: []v1alpha1.ResourceRule{{APIGroups: []string{""}, Resources: []string{"pods", "configmaps", "secrets"}}},
	}}
	own := &v1alpha1.ArchivePolicy{ObjectMeta: policysettest.Meta("shop", "own"), Spec: a.Spec}
	other := a.DeepCopy()
	other.Name, other.UID, other.Spec.DeletedBy = "other", "other", v1alpha1.DeletedByGleaner
	for _, o := range []metav1.Object{a, own, other} {
		o.SetFinalizers([]string{v1alpha1.InUseFinalizer})
	}
	x := policysettest.New(t, func(o *policysettest.Options) { o.Archiver = noArchiver{} }, a, own, other)
	list := additions(x.Settle())
	if len(list) != 1 || list[0].name != "gleaner-archive-a" || list[0].finalizer != "archive.cluster.gleaner.dev/a" {
		t.Fatalf("got %+v", list)
	}
	want := []policies.Rule{{Groups: []string{""}, Resources: []string{"configmaps"}}}
	if diff := cmp.Diff(want, list[0].resources); diff != "" {
		t.Errorf("resources (-want +got):\n%s", diff)
	}
	if list := additions(policysettest.Settled(t, a)); len(list) != 0 {
		t.Errorf("without an archive, got %+v", list)
	}
}

func TestFinalizerOf_DependsOnTheSnapshotAlone(t *testing.T) {
	s := policysettest.Settled(t, &v1alpha1.ClusterGCPolicy{ObjectMeta: policysettest.Meta("", "p"), Spec: policysettest.Orphaning(nil)})
	if finalizer, ok := FinalizerOf(s, holdPrefix+"p"); !ok || finalizer != graph.Hold {
		t.Errorf("%q, %t", finalizer, ok)
	}
	if finalizer, ok := FinalizerOf(s, holdPrefix+"another"); ok {
		t.Errorf("it adds %s for a policy that does not exist", finalizer)
	}
	if _, ok := FinalizerOf(nil, holdPrefix+"p"); ok {
		t.Error("it adds a finalizer before anything is known")
	}
}

// While a module is loading again, such as after every restart, the API server has to go
// on adding holds to new objects.
func TestRetained_AreThoseWhoseModulesAreLoading(t *testing.T) {
	f := &v1alpha1.ClusterFinalizer{ObjectMeta: policysettest.Meta("", "f")}
	f.Finalizers = []string{v1alpha1.InUseFinalizer}
	f.Spec.Finalizer, f.Spec.Mode, f.Spec.Attach, f.Spec.Module.Name, f.Spec.Resources = "example.com/f", v1alpha1.ModeEnforce, true, "slow", policysettest.ConfigMaps()
	monitor := policysettest.ModulePolicy("monitor", "slow", v1alpha1.OnFaultHold)
	monitor.Spec.Mode = v1alpha1.ModeMonitor
	x := policysettest.New(t, nil, policysettest.EndlessModule("slow"), f, monitor,
		policysettest.ModulePolicy("p", "slow", v1alpha1.OnFaultDefault), policysettest.ModulePolicy("none", "missing", v1alpha1.OnFaultHold))
	changed := x.Publisher.Changed()
	x.Run()
	<-changed
	s := x.Publisher.Current()
	got := retained(s)
	if len(got) != 2 || got[holdPrefix+"p"] != graph.Hold || got[attachPrefix+"f"] != "example.com/f" {
		t.Errorf("got %v", got)
	}
	for name, finalizer := range got {
		if added, ok := FinalizerOf(s, name); !ok || added != finalizer {
			t.Errorf("the webhook does not add %s for %s", finalizer, name)
		}
	}
}
