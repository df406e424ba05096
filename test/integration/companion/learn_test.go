package policies

import (
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/operator/loop"
	"github.com/gleaner-dev/gleaner/operator/modules"
)

const (
	managerUser = "system:kube-controller-manager"

	keepsMaps = `
kind: GCPolicy
metadata: {name: keeps}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  fixed: {collect: {decision: Orphan}}
  mode: Enforce`
)

// asOneUser is a control plane whose controllers all work as the same user.
func asOneUser(t *testing.T) *operation {
	t.Helper()
	o := operationOn(t, devcluster.Options{
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

// asks waits until the API server is told to ask about what a user deletes.
func (o *operation) asks(user string) {
	o.Helper()
	configurations := kubernetes.NewForConfigOrDie(o.config).AdmissionregistrationV1().ValidatingWebhookConfigurations()
	o.eventually(func() error {
		c, err := configurations.Get(o.Context(), modules.VetoName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if of := c.Webhooks[0].MatchConditions[0].Expression; !strings.Contains(of, `"`+user+`"`) {
			return errorf("it asks about %s; annotations: %v", of, c.Annotations)
		}
		return nil
	})
}

// kept makes an object that a policy keeps, and has it lose its owner.
func (o *operation) kept(name string) {
	o.Helper()
	owner := o.object("Secret", name, nil)
	dependent := o.make(name, owner)
	o.delete(owner)
	o.goes(owner)
	o.free(dependent)
}

func TestWhoTheOtherCollectorIsIsFoundOut(t *testing.T) {
	o := asOneUser(t)
	withCanary := func(l *loop.Options) { l.CanaryTimeout = 10 * time.Second }
	o.startWith(withCanary)
	p := o.policy(keepsMaps)
	o.asks(managerUser)
	o.kept("first")
	if user := o.collector.Show().Status().CollectorUser; user != managerUser {
		t.Errorf("it is shown to be %s", user)
	}

	// The other controllers work as the same user: they are not kept from what they do.
	busy := worldOn(t, o.config, o.collector)
	busy.policy(keepsMaps)
	owner := busy.object("Secret", "owner", nil)
	busy.make("dependent", owner)
	namespaces := kubernetes.NewForConfigOrDie(o.config).CoreV1().Namespaces()
	if err := namespaces.Delete(t.Context(), busy.ns, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	o.eventually(func() error {
		if n, err := namespaces.Get(t.Context(), busy.ns, metav1.GetOptions{}); err == nil {
			return errorf("its namespace is still there: %v", n.Status.Conditions)
		}
		return nil
	})

	// The next operator knows it from the start.
	o.end()
	o.start()
	o.kept("second")
	o.asks(managerUser)
	if err := o.client(p).Delete(t.Context(), p.GetName(), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func TestACollectorThatIsAnotherThanWasSaidIsTold(t *testing.T) {
	o := asOneUser(t)
	o.startWith(func(l *loop.Options) { l.CanaryTimeout, l.Veto.Given = 10*time.Second, true })
	p := o.policy(keepsMaps)
	instead := "run it with --collector-user=" + managerUser + ", or without that flag"
	o.says(p, "Enforcing", metav1.ConditionFalse, "NotVetoed", instead)
	o.asks(collectorUser)
	if s := o.collector.Show().Status(); s.Collecting || !strings.Contains(s.Message, instead) {
		t.Errorf("status: %+v", s)
	}
	o.end()
	o.startWith(func(l *loop.Options) { l.CanaryTimeout, l.Veto.Given, l.Veto.User = 10*time.Second, true, managerUser })
	o.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	o.kept("then")
}
