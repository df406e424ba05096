package policies

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/operator/run"
)

// The operator is switched from companion to primary mode while the built-in collector
// still runs: the protection from that collector must stay until it ends.
func TestSwitchToPrimary_KeepsAdmissionObjectsWhileNeeded(t *testing.T) {
	o := newDedicatedEnvOn(t, devcluster.Options{Controllers: controllers})
	o.startOperatorWith(func(*run.Options) {})
	keeps := o.applyPolicy(keepConfigMaps)
	o.waitForCondition(keeps, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	overrides := o.applyPolicy(overridingPolicy + `{propagate: {decision: Background}}`)
	o.waitForCondition(overrides, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	o.waitForDeleteRefused(o.createObject("Secret", "owner", governed), orphanOptions()["propagationPolicy"])
	o.stopOperator()

	o.startOperatorWith(func(l *run.Options) {
		l.Companion, l.Webhook = false, nil
		l.CanaryTimeout, l.CanaryInterval = 5*time.Second, 2*time.Second
	})
	o.eventually(func() error {
		if status := o.collector.Show().Status(); status.Collecting || status.Message == "" {
			return errorf("no other collector detected: %+v", status)
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
	o.waitForObserved(overrides) // by the new leader
	if names := placed(); len(names) != 2 {
		t.Errorf("with the built-in collector running, remaining objects: %v", names)
	}
	if err := o.cluster.StopControllerManager(); err != nil {
		t.Fatal(err)
	}
	if err := o.cluster.StartControllerManager(t.Context(), devcluster.WithoutCollector()...); err != nil {
		t.Fatal(err)
	}
	o.eventually(func() error {
		if names := placed(); len(names) != 0 {
			return errorf("remaining objects: %v", names)
		}
		return nil
	})
}
