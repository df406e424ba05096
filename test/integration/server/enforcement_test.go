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

// newEnforcingAPI starts a control plane with OwnerReferencesPermissionEnforcement, as in OpenShift.
func newEnforcingAPI(t *testing.T) *api {
	t.Helper()
	cluster := devtest.Start(t, devcluster.Options{
		NoControllerManager: true, APIServerFlags: []string{"--enable-admission-plugins=OwnerReferencesPermissionEnforcement"},
	})
	config := cluster.RESTConfig()
	return &api{T: t, config: config, objects: dynamic.NewForConfigOrDie(config), ns: devtest.Namespace(t, config)}
}

// The permissions needed to change owner references where they are enforced. Gleaner may
// patch and delete objects: it drops references and makes them non-blocking, but never makes
// one blocking.
func TestW10_W11_W12_W13_PermissionsToChangeReferences(t *testing.T) {
	a := newEnforcingAPI(t)
	rule := func(resource string, verbs ...any) map[string]any {
		return map[string]any{"apiGroups": []any{""}, "resources": []any{resource}, "verbs": verbs}
	}
	readRoles := map[string]any{"apiGroups": []any{rbac.Group}, "resources": []any{"roles"}, "verbs": []any{"get"}}
	users := map[string]*api{
		"may patch":                        a.asUser("patcher", readRoles, rule("configmaps", "patch")),
		"may patch and delete, as Gleaner": a.asUser("gleaner", readRoles, rule("configmaps", "patch", "delete")),
		"may change finalizers as well":    a.asUser("controller", readRoles, rule("configmaps", "patch", "delete"), rule("configmaps/finalizers", "update")),
	}
	owner := a.createNew(configMap)
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
		"W-10: no change of references":           {reference(nil), reference(nil), true, []string{"may patch", "may patch and delete, as Gleaner", "may change finalizers as well"}},
		"W-10, W-11, W-13: one is dropped":        {reference(ptr.To(true)), nil, false, []string{"may patch and delete, as Gleaner", "may change finalizers as well"}},
		"W-11: one is added":                      {nil, reference(nil), false, []string{"may patch and delete, as Gleaner", "may change finalizers as well"}},
		"W-11, W-13: one does not block any more": {reference(ptr.To(true)), reference(ptr.To(false)), false, []string{"may patch and delete, as Gleaner", "may change finalizers as well"}},
		"W-12: one blocks from now on":            {reference(ptr.To(false)), reference(ptr.To(true)), false, []string{"may change finalizers as well"}},
		"W-12: a blocking one is added":           {nil, reference(ptr.To(true)), false, []string{"may change finalizers as well"}},
		"W-12: unknown owner type":                {nil, unknown, false, nil},
	} {
		for who, user := range users {
			t.Run(name+", user "+who, func(t *testing.T) {
				o := object(configMap)
				o.SetOwnerReferences(c.was)
				o = a.forSubtest(t).create(configMap, o)
				change := map[string]any{"ownerReferences": c.is}
				if c.label {
					change["labels"] = map[string]string{"a": "b"}
				}
				err := user.forSubtest(t).patch(configMap, o, change)
				allowed := false
				for _, one := range c.allowed {
					allowed = allowed || one == who
				}
				if apierrors.IsForbidden(err) == allowed || allowed && err != nil {
					t.Errorf("allowed is %t; got error %v", allowed, err)
				}
			})
		}
	}
}
