package integration

import (
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

const collectorUser = "gleaner-test-collector"

// bare is a control plane of a test's own, without controllers.
func bare(t *testing.T) *devcluster.Cluster {
	t.Helper()
	return devtest.Start(t, devcluster.Options{NoControllerManager: true})
}

// G-71: what README.md says that it needs is enough, and writes nothing else:
// no update of what it collects, for one. The control plane has no controllers.
func TestG71_TheRightsThatTheReadmeAsksForAreEnough(t *testing.T) {
	cluster := bare(t)
	admin := cluster.RESTConfig()
	allow(t, admin, "gleaner-test", []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "patch", "delete"}},
		{APIGroups: []string{"*"}, Resources: []string{"*/finalizers"}, Verbs: []string{"update"}},
		{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	})
	allowIn(t, admin, metav1.NamespaceSystem, "gleaner-test", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}}, // the canary
	})
	config, err := cluster.ConfigFor(collectorUser)
	if err != nil {
		t.Fatal(err)
	}
	o := options(config)
	o.CanaryTimeout = 2 * time.Second
	collector := run(t, o)
	status(t, collector, true, "collecting")

	w := worldOn(t, admin, collector)
	custom := w.define(true)
	for name, k := range map[string]*kind{"core": configMap, "custom": custom} {
		for _, policy := range []metav1.DeletionPropagation{background, foreground, orphan} {
			owner := w.make(thing{name: "owner", kind: k})
			dependent := w.make(thing{name: name + "-dependent", kind: k, owners: blocks(owner)})
			w.seen(owner, dependent)
			w.delete(owner, policy)
			w.goes(owner)
			if policy != orphan {
				w.goes(dependent)
				continue
			}
			w.ownedBy(dependent)
			w.stays(dependent)
		}
	}
	owner := w.make(thing{name: "owner"})
	w.seen(owner)
	far := worldOn(t, admin, collector)
	far.warning(far.make(thing{name: "far", owners: owns(owner)}))
}

// allowIn gives the collector's user rights in one namespace.
func allowIn(t *testing.T, admin *rest.Config, namespace, name string, rules []rbacv1.PolicyRule) {
	t.Helper()
	roles := kubernetes.NewForConfigOrDie(admin).RbacV1()
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := roles.Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: collectorUser}},
	}
	if _, err := roles.RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// allow gives the collector's user rights everywhere.
func allow(t *testing.T, admin *rest.Config, name string, rules []rbacv1.PolicyRule) {
	t.Helper()
	roles := kubernetes.NewForConfigOrDie(admin).RbacV1()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	if _, err := roles.ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: collectorUser}},
	}
	if _, err := roles.ClusterRoleBindings().Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}
