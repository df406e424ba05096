package policies

import (
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/run"
)

const (
	managerUser = "system:kube-controller-manager"

	keepConfigMaps = `
kind: GCPolicy
metadata: {name: keeps}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`
)

// newSingleUserEnv starts a control plane whose controllers all use the same user.
func newSingleUserEnv(t *testing.T) *dedicatedEnv {
	t.Helper()
	o := newDedicatedEnvOn(t, devcluster.Options{
		NoControllerManager: true, ControllerManagerFlags: []string{"--use-service-account-credentials=false"},
	})
	_, err := kubernetes.NewForConfigOrDie(o.config).RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "manager"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: managerUser}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := o.cluster.StartControllerManager(t.Context()); err != nil {
		t.Fatal(err)
	}
	return o
}

// waitForWebhookUser waits until the webhook configuration matches deletes by a user.
func (o *dedicatedEnv) waitForWebhookUser(user string) {
	o.Helper()
	configurations := kubernetes.NewForConfigOrDie(o.config).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	o.eventually(func() error {
		c, err := configurations.Get(o.Context(), companion.ConfigurationName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if of := c.Webhooks[0].MatchConditions[0].Expression; !strings.Contains(of, `"`+user+`"`) {
			return errorf("webhook matches deletes by %s; annotations: %v", of, c.Annotations)
		}
		return nil
	})
}

// createKept creates an object that a policy keeps, and deletes its owner.
func (o *dedicatedEnv) createKept(name string) {
	o.Helper()
	owner := o.createObject("Secret", name, nil)
	dependent := o.createConfigMap(name, owner)
	o.delete(owner)
	o.waitForDeletion(owner)
	o.waitForNoOwners(dependent)
}

func TestCollectorUser_IsDiscovered(t *testing.T) {
	o := newSingleUserEnv(t)
	withCanary := func(l *run.Options) { l.CanaryTimeout = 10 * time.Second }
	o.startOperatorWith(withCanary)
	p := o.applyPolicy(keepConfigMaps)
	o.waitForWebhookUser(managerUser)
	o.createKept("first")
	if user := o.collector.Show().Status().CollectorUser; user != managerUser {
		t.Errorf("collector user is reported as %s", user)
	}

	// The other controllers work as the same user: their deletes must not be refused.
	busy := newEnvOn(t, o.config, o.collector)
	busy.applyPolicy(keepConfigMaps)
	owner := busy.createObject("Secret", "owner", nil)
	busy.createConfigMap("dependent", owner)
	namespaces := kubernetes.NewForConfigOrDie(o.config).CoreV1().Namespaces()
	if err := namespaces.Delete(t.Context(), busy.ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	o.eventually(func() error {
		if n, err := namespaces.Get(t.Context(), busy.ns, metav1.GetOptions{}); err == nil {
			return errorf("namespace still exists: %v", n.Status.Conditions)
		}
		return nil
	})

	// The next operator uses it from the start.
	o.stopOperator()
	o.startOperator()
	o.createKept("second")
	o.waitForWebhookUser(managerUser)
	if err := o.client(p).Delete(t.Context(), p.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestCollectorUser_Mismatch_IsReported(t *testing.T) {
	o := newSingleUserEnv(t)
	o.startOperatorWith(func(l *run.Options) { l.CanaryTimeout, l.Collector.Given = 10*time.Second, true })
	p := o.applyPolicy(keepConfigMaps)
	instead := "use --collector-user=" + managerUser + ", or remove that flag"
	o.waitForCondition(p, "Enforcing", metav1.ConditionFalse, "NotVetoed", instead)
	o.waitForWebhookUser(collectorUser)
	if s := o.collector.Show().Status(); s.Collecting || !strings.Contains(s.Message, instead) {
		t.Errorf("status: %+v", s)
	}
	o.stopOperator()
	o.startOperatorWith(func(l *run.Options) {
		l.CanaryTimeout, l.Collector = 10*time.Second, companion.Collector{User: managerUser, Given: true}
	})
	o.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	o.createKept("then")
}
