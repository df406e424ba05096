package modules

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// A delete in the foreground puts a finalizer on the resource, and so it is seen to be
// deleted although nothing of ours keeps it.
func TestAFinalizerThatWasNeverInForceFreesNothingWhenItIsDeleted(t *testing.T) {
	for name, c := range map[string]struct {
		mode       v1alpha1.Mode
		finalizers []string
		frees      bool
	}{
		"always in Monitor": {v1alpha1.ModeMonitor, []string{metav1.FinalizerDeleteDependents}, false},
		"in Enforce":        {v1alpha1.ModeEnforce, []string{metav1.FinalizerDeleteDependents}, true},
		"in Enforce before": {v1alpha1.ModeMonitor, []string{InUse}, true},
	} {
		t.Run(name, func(t *testing.T) {
			now := metav1.Now()
			f := &v1alpha1.ClusterFinalizer{ObjectMeta: metav1.ObjectMeta{Name: "f", UID: "f", DeletionTimestamp: &now, Finalizers: c.finalizers}}
			f.Spec.Finalizer, f.Spec.Mode, f.Spec.OnRemoval = "example.com/f", c.mode, v1alpha1.RemovalRelease
			f.Spec.Resources = configMaps()
			k, _ := once(t, f)
			list, _ := k.Finalizers()
			if len(list) != 1 || list[0].FreeAtRemoval != c.frees || !list[0].Removed {
				t.Errorf("got %+v", list)
			}
		})
	}
}

func TestAModuleIsNamedByAFinalizerWhoseSelectionIsWrong(t *testing.T) {
	f := &v1alpha1.ClusterFinalizer{ObjectMeta: metav1.ObjectMeta{Name: "f", UID: "f"}}
	f.Spec.Finalizer, f.Spec.Mode, f.Spec.Module.Name = "example.com/f", v1alpha1.ModeEnforce, "m"
	f.Spec.Resources = configMaps()
	f.Spec.MatchConditions = []v1alpha1.MatchCondition{{Name: "wrong", Expression: "!"}}
	k, _ := once(t, f)
	list, _ := k.Finalizers()
	if len(list) != 1 || list[0].Module != "ClusterPolicyModule m" {
		t.Errorf("got %+v", list)
	}
}

func TestAFinalizerIsAttachedOnceItsResourceIsKept(t *testing.T) {
	for _, kept := range []bool{false, true} {
		f := &v1alpha1.ClusterFinalizer{ObjectMeta: metav1.ObjectMeta{Name: "f", UID: "f"}}
		f.Spec.Finalizer, f.Spec.Mode, f.Spec.Attach = "example.com/f", v1alpha1.ModeEnforce, true
		f.Spec.Resources = configMaps()
		if kept {
			f.Finalizers = []string{InUse}
		}
		k, _ := once(t, f)
		if list, _ := k.Finalizers(); len(list) != 1 || list[0].Attach != kept {
			t.Errorf("kept: %t, got %+v", kept, list)
		}
	}
}
