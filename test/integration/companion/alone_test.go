package policies

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/operator/loop"
)

func TestPoliciesSayThatThereIsNoOtherCollectorUntilThereIs(t *testing.T) {
	o := operationOn(t, devcluster.Options{Controllers: []string{"*", "-garbage-collector-controller", "-storage-version-migrator-controller"}})
	o.startWith(func(l *loop.Options) { l.CanaryTimeout = 5 * time.Second })
	collects := o.policy(keepsMaps)
	propagates := o.policy(governing + `{propagate: {decision: Background}}`)
	const advice = "start kube-controller-manager with its garbage-collector-controller"
	o.says(collects, "Enforcing", metav1.ConditionTrue, "NoOtherCollector", advice)
	o.says(propagates, "Enforcing", metav1.ConditionFalse, "NoOtherCollector", advice)
	o.told(corev1.EventTypeWarning, "NoOtherCollector", collects, propagates)
	if err := o.cluster.StopControllerManager(); err != nil {
		t.Fatal(err)
	}
	if err := o.cluster.StartControllerManager(t.Context(), controllers...); err != nil {
		t.Fatal(err)
	}
	o.says(collects, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	o.says(propagates, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	o.told(corev1.EventTypeNormal, "Enforcing", collects, propagates)
}

// told waits for an event about each of some policies.
func (o *operation) told(level, reason string, about ...*unstructured.Unstructured) {
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
				return errorf("%s is told about %v", reason, names)
			}
		}
		return nil
	})
}
