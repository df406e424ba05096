package inuse

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/go-logr/logr/testr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/policyset/policysettest"
)

// fixture is a Guard of resources in memory, of a replica that leads.
type fixture struct {
	*policysettest.Fixture
	guard    *Guard
	gate     gate.Gate
	admitted latest.Value[admission.Status]
	carriers int
	counted  bool
}

func newFixture(t *testing.T, resources ...client.Object) *fixture {
	t.Helper()
	f := &fixture{Fixture: policysettest.New(t, func(o *policysettest.Options) { o.Archiver = noArchiver{} }, resources...)}
	f.guard = New(Options{
		Client: f.Client, Snapshots: f.Publisher, Gate: &f.gate, Admission: &f.admitted, Log: testr.New(t),
		Carriers: func(types.UID) (int, bool) { return f.carriers, f.counted },
	})
	return f
}

type noArchiver struct{}

func (noArchiver) Archive(context.Context, *policyset.Archive, *unstructured.Unstructured) (string, error) {
	return "", errors.New("nothing is archived here")
}

// update updates once, for the resources as they are now, and reads again.
func (f *fixture) update() {
	f.Helper()
	f.Settle()
	f.guard.update(f.Context())
	f.Settle()
}

// install says that admission objects are installed for the current snapshot.
func (f *fixture) install(late admission.Failures) {
	f.admitted.Store(admission.Status{Term: f.gate.State().Term, Revision: f.Publisher.Current().Revision, Failed: late})
}

func (f *fixture) finalizers() []string {
	f.Helper()
	o := &v1alpha1.ClusterFinalizer{}
	if err := f.Client.Get(f.Context(), client.ObjectKey{Name: "f"}, o); client.IgnoreNotFound(err) != nil {
		f.Fatal(err)
	}
	return o.Finalizers
}

func finalizer(mode v1alpha1.Mode) *v1alpha1.ClusterFinalizer {
	f := &v1alpha1.ClusterFinalizer{ObjectMeta: policysettest.Meta("", "f")}
	f.Spec.Finalizer, f.Spec.Mode, f.Spec.Resources, f.Spec.Module.Name = "example.com/f", mode, policysettest.ConfigMaps(), "m"
	return f
}

func TestGuard_KeepsFinalizersInEnforceAndTheirModules(t *testing.T) {
	for mode, keeps := range map[v1alpha1.Mode]bool{v1alpha1.ModeEnforce: true, v1alpha1.ModeMonitor: false} {
		f := newFixture(t, finalizer(mode), policysettest.Module("m", policysettest.FinalizeText))
		f.update()
		if slices.Contains(f.finalizers(), v1alpha1.InUseFinalizer) {
			t.Errorf("%s: a replica that does not lead keeps it", mode)
		}
		f.gate.Lead()
		f.update()
		if got := slices.Contains(f.finalizers(), v1alpha1.InUseFinalizer); got != keeps {
			t.Errorf("%s: it is kept: %t", mode, got)
		}
		if got := slices.Contains(f.Publisher.Current().Modules[0].Object.GetFinalizers(), v1alpha1.InUseFinalizer); got != keeps {
			t.Errorf("%s: its module is kept: %t", mode, got)
		}
	}
}

// An archive policy without finalizers on objects may be deleted at any time.
func TestGuard_KeepsArchivePoliciesWhoseObjectsHaveAFinalizer(t *testing.T) {
	for by, keeps := range map[v1alpha1.DeletedBy]bool{v1alpha1.DeletedByAnyone: true, v1alpha1.DeletedByGleaner: false} {
		a := &v1alpha1.ClusterArchivePolicy{ObjectMeta: policysettest.Meta("", "a")}
		a.Spec.Resources, a.Spec.DeletedBy = policysettest.ConfigMaps(), by
		f := newFixture(t, a)
		f.gate.Lead()
		f.update()
		live := f.Publisher.Current().Archives[0]
		if got := slices.Contains(live.Object.GetFinalizers(), v1alpha1.InUseFinalizer); got != keeps || (live.Finalizer != nil) != keeps {
			t.Errorf("deleted by %s: it is kept: %t, %+v", by, got, live.Finalizer)
		}
	}
}

func TestGuard_ReleasesAnArchivePolicyOnceNoObjectNeedsIt(t *testing.T) {
	a := &v1alpha1.ClusterArchivePolicy{ObjectMeta: policysettest.Meta("", "a")}
	a.Spec.Resources = policysettest.ConfigMaps()
	a.Finalizers, a.DeletionTimestamp = []string{v1alpha1.InUseFinalizer}, &metav1.Time{Time: metav1.Now().Rfc3339Copy().Time}
	f := newFixture(t, a)
	f.gate.Lead()
	f.Settle()
	f.install(nil)
	f.carriers, f.counted = 1, true
	f.guard.update(t.Context())
	f.Settle()
	if len(f.Publisher.Current().Archives) != 1 {
		t.Fatal("it is released although an object has its finalizer")
	}
	f.carriers = 0
	f.install(nil)
	f.guard.update(t.Context())
	f.Settle()
	if len(f.Publisher.Current().Archives) != 0 {
		t.Error("it is kept although no object has its finalizer")
	}
}

// The zero value keeps it: objects that were not counted may have it, and as long as it is
// not known what is installed it may be attached to others.
func TestGuard_ReleasesAFinalizerOnceNoObjectHasIt(t *testing.T) {
	o := finalizer(v1alpha1.ModeEnforce)
	o.Finalizers, o.DeletionTimestamp = []string{v1alpha1.InUseFinalizer}, &metav1.Time{Time: metav1.Now().Rfc3339Copy().Time}
	f := newFixture(t, o)
	f.gate.Lead()
	kept := func(claim string) {
		t.Helper()
		f.Settle()
		f.guard.update(t.Context())
		if !slices.Contains(f.finalizers(), v1alpha1.InUseFinalizer) {
			t.Fatalf("it is released although %s", claim)
		}
	}
	kept("nothing is known")
	f.counted = true
	kept("it is not known what is installed")
	f.Settle()
	f.install(admission.Failures{"": admission.ErrNoCertificate})
	f.guard.update(t.Context())
	if !slices.Contains(f.finalizers(), v1alpha1.InUseFinalizer) {
		t.Fatal("it is released although admission objects may be left")
	}
	f.install(nil)
	f.carriers = 1
	f.guard.update(t.Context())
	if !slices.Contains(f.finalizers(), v1alpha1.InUseFinalizer) {
		t.Fatal("it is released although an object has it")
	}
	f.carriers = 0
	f.guard.update(t.Context())
	if slices.Contains(f.finalizers(), v1alpha1.InUseFinalizer) {
		t.Error("it is kept although no object has it")
	}
}
