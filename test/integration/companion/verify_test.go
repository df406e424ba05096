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
	"github.com/gleaner-dev/gleaner/operator/loop"
)

// collectsAs plays another collector, which works as some user: it ends the foreground
// deletion of canaries.
func (o *operation) collectsAs(user string) {
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
				continue // the next look is soon
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

// withoutCollector is a control plane on which the test plays the other collector.
func withoutCollector(t *testing.T) *operation {
	t.Helper()
	t.Parallel()
	return operationOn(t, devcluster.Options{NoControllerManager: true})
}

func TestAPolicyIsNotEnforcedAgainstACollectorOfAnotherUser(t *testing.T) {
	o := withoutCollector(t)
	o.collectsAs("acme-collector")
	o.start()
	p := o.policy(keepsMaps)
	const fix = "run Gleaner with --collector-user=acme-collector"
	o.says(p, "Enforcing", metav1.ConditionFalse, "NotVetoed", fix)
	o.asks(collectorUser) // whoever finishes canaries is not taken for it unasked
	o.end()
	o.startWith(func(l *loop.Options) { l.Veto.Given, l.Veto.User = true, "acme-collector" })
	o.says(p, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	o.asks("acme-collector")
}

func TestAPolicyIsNotEnforcedAgainstACollectorOfGleanersOwnUser(t *testing.T) {
	o := withoutCollector(t)
	o.collectsAs("gleaner") // as operationOn has it
	o.start()
	p := o.policy(keepsMaps)
	o.says(p, "Enforcing", metav1.ConditionFalse, "CollectorNotVerified", "works as Gleaner's own user")
	o.told(corev1.EventTypeWarning, "CollectorNotVerified", p)
}

func TestAPolicyIsNotEnforcedWithoutACanary(t *testing.T) {
	o := withoutCollector(t)
	o.startWith(func(l *loop.Options) { l.CanaryTimeout = 0 })
	o.says(o.policy(keepsMaps), "Enforcing", metav1.ConditionFalse, "CollectorNotVerified", "--canary-timeout=0")
}
