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
	"github.com/gleaner-dev/gleaner/test/inprocess"
)

const collectorUser = "gleaner-test-collector"

// startBareCluster starts a control plane without controllers.
func startBareCluster(t *testing.T) *devcluster.Cluster {
	t.Helper()
	return devtest.Start(t, devcluster.Options{NoControllerManager: true})
}

// G-71: the permissions that README.md lists are sufficient, and allow no other
// writes, such as updates of collected objects. The control plane has no controllers.
func TestG71_PermissionsInTheReadme_AreSufficient(t *testing.T) {
	cluster := startBareCluster(t)
	admin := cluster.RESTConfig()
	grantClusterWide(t, admin, "gleaner-test", []rbacv1.PolicyRule{
		{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"get", "list", "watch", "patch", "delete"}},
		{APIGroups: []string{"*"}, Resources: []string{"*/finalizers"}, Verbs: []string{"update"}},
		{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}},
	})
	grantInNamespace(t, admin, metav1.NamespaceSystem, "gleaner-test", []rbacv1.PolicyRule{
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"create"}}, // the canary
	})
	config, err := cluster.ConfigFor(collectorUser)
	if err != nil {
		t.Fatal(err)
	}
	o := inprocess.Options(config)
	o.CanaryTimeout = 2 * time.Second
	collector := inprocess.RunForTest(t, o)
	waitForStatus(t, collector, true, "collecting")

	w := newEnvOn(t, admin, collector)
	custom := w.createType(true)
	for name, k := range map[string]*kind{"core": configMap, "custom": custom} {
		for _, policy := range []metav1.DeletionPropagation{background, foreground, orphan} {
			owner := w.create(objectSpec{name: "owner", kind: k})
			dependent := w.create(objectSpec{name: name + "-dependent", kind: k, owners: blockingRefs(owner)})
			w.waitForGraph(owner, dependent)
			w.delete(owner, policy)
			w.waitForDeletion(owner)
			if policy != orphan {
				w.waitForDeletion(dependent)
				continue
			}
			w.waitForOwners(dependent)
			w.expectKept(dependent)
		}
	}
	owner := w.create(objectSpec{name: "owner"})
	w.waitForGraph(owner)
	far := newEnvOn(t, admin, collector)
	far.waitForWarning(far.create(objectSpec{name: "far", owners: ownerRefs(owner)}))
}

// grantInNamespace grants the collector's user permissions in one namespace.
func grantInNamespace(t *testing.T, admin *rest.Config, namespace, name string, rules []rbacv1.PolicyRule) {
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

// grantClusterWide grants the collector's user permissions in all namespaces.
func grantClusterWide(t *testing.T, admin *rest.Config, name string, rules []rbacv1.PolicyRule) {
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
