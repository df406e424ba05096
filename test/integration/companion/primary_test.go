package policies

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/operator/loop"
)

// Somebody goes from companion to primary, and the other collector is still at work: what
// keeps it from objects has to stay for as long.
func TestWhatACompanionHadTheAPIServerDoEndsWithTheOtherCollectorAndNotBefore(t *testing.T) {
	o := operationOn(t, devcluster.Options{Controllers: controllers})
	o.startWith(func(*loop.Options) {})
	keeps := o.policy(keepsMaps)
	o.says(keeps, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	overrides := o.policy(overriding + `{propagate: {decision: Background}}`)
	o.says(overrides, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	o.refused(o.object("Secret", "owner", governed), orphaning()["propagationPolicy"])
	o.end()

	o.startWith(func(l *loop.Options) {
		l.Beside, l.Veto = false, nil
		l.CanaryTimeout, l.CanaryInterval = 5*time.Second, 2*time.Second
	})
	o.eventually(func() error {
		if status := o.collector.Show().Status(); status.Collecting || status.Message == "" {
			return errorf("it has not found the other one: %+v", status)
		}
		return nil
	})
	admission := kubernetes.NewForConfigOrDie(o.config).AdmissionregistrationV1()
	placed := func() (names []string) {
		t.Helper()
		vetoes, err := admission.ValidatingWebhookConfigurations().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range vetoes.Items {
			names = append(names, v.Name)
		}
		refusals, err := admission.ValidatingAdmissionPolicies().List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range refusals.Items {
			names = append(names, r.Name)
		}
		return names
	}
	o.patch(overrides, `{"spec": {"priority": 1}}`)
	o.policyObserved(overrides) // by the one that leads now
	if names := placed(); len(names) != 2 {
		t.Errorf("beside the other collector there is %v", names)
	}
	if err := o.cluster.StopControllerManager(); err != nil {
		t.Fatal(err)
	}
	if err := o.cluster.StartControllerManager(t.Context(), "*", "-garbage-collector-controller", "-storage-version-migrator-controller"); err != nil {
		t.Fatal(err)
	}
	o.eventually(func() error {
		if names := placed(); len(names) != 0 {
			return errorf("there is still %v", names)
		}
		return nil
	})
}
