package server

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// enforcing is a control plane with OwnerReferencesPermissionEnforcement, as OpenShift's.
func enforcing(t *testing.T) *api {
	t.Helper()
	cluster := devtest.Start(t, devcluster.Options{
		NoControllerManager: true, APIServerFlags: []string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"},
	})
	config := cluster.RESTConfig()
	return &api{T: t, config: config, objects: dynamic.NewForConfigOrDie(config), ns: devtest.Namespace(t, config)}
}

// The rights that it takes to change owner references where they are enforced. Gleaner, which
// may patch and delete everything and nothing else, drops references and has them not block;
// it never makes one block.
func TestW10_W11_W12_W13_WhoMayChangeReferencesWhereThatIsEnforced(t *testing.T) {
	a := enforcing(t)
	rule := func(resource string, verbs ...any) map[string]any {
		return map[string]any{"apiGroups": []any{""}, "resources": []any{resource}, "verbs": verbs}
	}
	readRoles := map[string]any{"apiGroups": []any{rbac.Group}, "resources": []any{"roles"}, "verbs": []any{"get"}}
	users := map[string]*api{
		"may patch":                        a.as("patcher", readRoles, rule("configmaps", "patch")),
		"may patch and delete, as Gleaner": a.as("gleaner", readRoles, rule("configmaps", "patch", "delete")),
		"may change finalizers as well":    a.as("controller", readRoles, rule("configmaps", "patch", "delete"), rule("configmaps/finalizers", "update")),
	}
	owner := a.make(configMap)
	reference := func(blocks *bool) []metav1.OwnerReference {
		return []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.GetName(), UID: owner.GetUID(), BlockOwnerDeletion: blocks}}
	}
	unknown := reference(ptr.To(true))
	unknown[0].APIVersion, unknown[0].Kind = "example.com/v1", "Nothing"
	for name, c := range map[string]struct {
		was, is []metav1.OwnerReference
		label   bool
		allowed []string
	}{
		"W-10: nothing changes of the references": {reference(nil), reference(nil), true, []string{"may patch", "may patch and delete, as Gleaner", "may change finalizers as well"}},
		"W-10, W-11, W-13: one is dropped":        {reference(ptr.To(true)), nil, false, []string{"may patch and delete, as Gleaner", "may change finalizers as well"}},
		"W-11: one is added":                      {nil, reference(nil), false, []string{"may patch and delete, as Gleaner", "may change finalizers as well"}},
		"W-11, W-13: one does not block any more": {reference(ptr.To(true)), reference(ptr.To(false)), false, []string{"may patch and delete, as Gleaner", "may change finalizers as well"}},
		"W-12: one blocks from now on":            {reference(ptr.To(false)), reference(ptr.To(true)), false, []string{"may change finalizers as well"}},
		"W-12: a blocking one is added":           {nil, reference(ptr.To(true)), false, []string{"may change finalizers as well"}},
		"W-12: nobody knows the owner's type":     {nil, unknown, false, nil},
	} {
		for who, user := range users {
			t.Run(name+", by one who "+who, func(t *testing.T) {
				o := object(configMap)
				o.SetOwnerReferences(c.was)
				o = a.with(t).create(configMap, o)
				change := map[string]any{"ownerReferences": c.is}
				if c.label {
					change["labels"] = map[string]string{"a": "b"}
				}
				err := user.with(t).patch(configMap, o, change)
				allowed := false
				for _, one := range c.allowed {
					allowed = allowed || one == who
				}
				if apierrors.IsForbidden(err) == allowed || allowed && err != nil {
					t.Errorf("allowed is %t, and it was answered: %v", allowed, err)
				}
			})
		}
	}
}
