package policies

import (
	"context"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/operator/canary"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/run"
)

// runFakeCollector plays a garbage collector that works as some user: it completes the
// foreground deletion of canaries.
func (o *dedicatedEnv) runFakeCollector(user string) {
	o.Helper()
	config, err := o.cluster.ConfigFor(user, "system:masters")
	if err != nil {
		o.Fatal(err)
	}
	ctx, cancel := context.WithCancel(o.Context())
	ended := make(chan struct{})
	o.Cleanup(func() {
		cancel()
		<-ended
	})
	maps := kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(metav1.NamespaceAll)
	go func() {
		defer close(ended)
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			list, err := maps.List(ctx, metav1.ListOptions{LabelSelector: canary.Label + "=true"})
			if err != nil {
				continue // retried on the next poll
			}
			for _, c := range list.Items {
				if slices.Contains(c.Finalizers, metav1.FinalizerDeleteDependents) {
					_, _ = kubernetes.NewForConfigOrDie(config).CoreV1().ConfigMaps(c.Namespace).Patch(ctx, c.Name, types.MergePatchType,
						[]byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
				}
			}
		}
	}()
}

// newEnvWithoutCollector starts a control plane on which the test plays the built-in collector.
func newEnvWithoutCollector(t *testing.T) *dedicatedEnv {
	t.Helper()
	t.Parallel()
	return newDedicatedEnvOn(t, devcluster.Options{NoControllerManager: true})
}

func TestPolicy_IsNotEnforced_ForAnotherCollectorUser(t *testing.T) {
	o := newEnvWithoutCollector(t)
	o.runFakeCollector("acme-collector")
	o.startOperator()
	p := o.applyPolicy(keepConfigMaps)
	const fix = "run Gleaner with --collector-user=acme-collector"
	o.waitForCondition(p, "Enforcing", metav1.ConditionFalse, "NotVetoed", fix)
	o.waitForWebhookUser(collectorUser) // a user that completes canaries is not adopted automatically
	o.stopOperator()
	o.startOperatorWith(func(l *run.Options) { l.Collector = companion.Collector{User: "acme-collector", Given: true} })
	o.waitForCondition(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	o.waitForWebhookUser("acme-collector")
}

func TestPolicy_IsNotEnforced_ForGleanersOwnUser(t *testing.T) {
	o := newEnvWithoutCollector(t)
	o.runFakeCollector("gleaner") // the user that newDedicatedEnvOn uses
	o.startOperator()
	p := o.applyPolicy(keepConfigMaps)
	o.waitForCondition(p, "Enforcing", metav1.ConditionFalse, "CollectorNotVerified", "works as Gleaner's own user")
	o.waitForEvents(corev1.EventTypeWarning, "CollectorNotVerified", p)
}

func TestPolicy_IsNotEnforced_WithoutACanary(t *testing.T) {
	o := newEnvWithoutCollector(t)
	o.startOperatorWith(func(l *run.Options) { l.CanaryTimeout = 0 })
	o.waitForCondition(o.applyPolicy(keepConfigMaps), "Enforcing", metav1.ConditionFalse, "CollectorNotVerified", "--canary-timeout=0")
}
