package policies

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/operator/run"
)

func TestStatus_ReportsAMissingBuiltInCollector(t *testing.T) {
	o := newDedicatedEnvOn(t, devcluster.Options{Controllers: devcluster.WithoutCollector()})
	o.startOperatorWith(func(l *run.Options) { l.CanaryTimeout = 5 * time.Second })
	collects := o.applyPolicy(keepConfigMaps)
	propagates := o.applyPolicy(governingPolicy + `{propagate: {decision: Background}}`)
	const advice = "start kube-controller-manager with its garbage-collector-controller"
	o.waitForCondition(collects, "Enforcing", metav1.ConditionTrue, "NoOtherCollector", advice)
	o.waitForCondition(propagates, "Enforcing", metav1.ConditionFalse, "NoOtherCollector", advice)
	o.waitForEvents(corev1.EventTypeWarning, "NoOtherCollector", collects, propagates)
	if err := o.cluster.StopControllerManager(); err != nil {
		t.Fatal(err)
	}
	if err := o.cluster.StartControllerManager(t.Context(), controllers...); err != nil {
		t.Fatal(err)
	}
	o.waitForCondition(collects, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	o.waitForCondition(propagates, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	o.waitForEvents(corev1.EventTypeNormal, "Enforcing", collects, propagates)
}

// waitForEvents waits for an event about each of the given policies.
func (o *dedicatedEnv) waitForEvents(level, reason string, about ...*unstructured.Unstructured) {
	o.Helper()
	o.eventually(func() error {
		events, err := kubernetes.NewForConfigOrDie(o.config).CoreV1().Events(o.ns).List(o.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		names := map[string]bool{}
		for _, e := range events.Items {
			if e.Type == level && e.Reason == reason {
				names[e.InvolvedObject.Name] = true
			}
		}
		for _, p := range about {
			if !names[p.GetName()] {
				return errorf("got event %s about %v", reason, names)
			}
		}
		return nil
	})
}
