package node

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/test/inprocess"
)

// primaryUser is the user name of Gleaner: see inside.OperatorConfig.
const primaryUser = "gleaner"

// runPrimary runs Gleaner as the only collector until the test ends.
func runPrimary(t *testing.T) *env {
	t.Helper()
	startCluster(t)
	config, err := inprocess.OperatorConfig(shared.cluster)
	if err != nil {
		t.Fatal(err)
	}
	if err := inprocess.CreateCRDs(t, config); err != nil {
		t.Fatal(err)
	}
	collector, stop, err := inprocess.RunCollector(inprocess.Options(config))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return newEnv(t, collector)
}

func TestScenario55_G58_Primary_DeploymentWaitsForContainers(t *testing.T) {
	w := runPrimary(t)
	made := w.createWorkload()
	w.testForeground(made, primaryUser)
}

func TestScenario53_G49_Primary_PodsOutliveTheirDeployment(t *testing.T) {
	w := runPrimary(t)
	made := w.createWorkload()
	w.testBackground(made, primaryUser)
}

// The Pods' own grace period of a second would have their containers killed. A policy for the Deployment gives everything
// below it more time, and has it deleted after that.
func TestGracePeriod_Primary_OfAPolicyIsThatOfItsPods(t *testing.T) {
	w := runPrimary(t)
	w.applyPolicy("drain", map[string]any{
		"resources": []any{map[string]any{"apiGroups": []any{"apps"}, "resources": []any{"deployments"}}},
		"fixed":     map[string]any{"propagate": map[string]any{"decision": "Foreground", "gracePeriodSeconds": int64(gracePeriod)}},
		"mode":      "Enforce",
	})
	made := w.createWorkloadWith(1)
	ends := w.followWorkload()
	w.delete(made.deployment, metav1.DeletePropagationBackground)
	deployment, set, pods := ends.deployments(1)[made.deployment.UID], ends.sets(1)[made.set.UID], ends.pods(replicas)
	for uid, pod := range pods {
		if pod.gone > set.gone || set.gone > deployment.gone {
			w.Errorf("Pod %s was deleted at version %d, the ReplicaSet at %d, the Deployment at %d", uid, pod.gone, set.gone, deployment.gone)
		}
	}
	w.expectGracefulEnd(pods)
}

// testForeground deletes a Deployment in the foreground and checks that it and its
// ReplicaSet exist until the containers have ended.
func (w *env) testForeground(made workload, collector string) {
	w.Helper()
	ends := w.followWorkload()
	w.delete(made.deployment, metav1.DeletePropagationForeground)
	deployment := ends.deployments(1)[made.deployment.UID]
	for _, p := range made.pods {
		if w.containersRunning(p) {
			w.Errorf("Deployment is gone, but a container of Pod %s is running", p.Name)
		}
	}
	set, pods := ends.sets(1)[made.set.UID], ends.pods(replicas)
	for uid, pod := range pods {
		if pod.gone > set.gone || set.gone > deployment.gone {
			w.Errorf("Pod %s was deleted at version %d, the ReplicaSet at %d, the Deployment at %d", uid, pod.gone, set.gone, deployment.gone)
		}
	}
	w.expectGracefulEnd(pods)
	w.expectDeletesOnlyBy(collector)
}

// testBackground deletes a Deployment in the background and checks that it is deleted
// first, and its Pods only when their containers have ended.
func (w *env) testBackground(made workload, collector string) {
	w.Helper()
	ends := w.followWorkload()
	w.delete(made.deployment, metav1.DeletePropagationBackground)
	deployment, set := ends.deployments(1)[made.deployment.UID], ends.sets(1)[made.set.UID]
	pods := ends.pods(replicas)
	for uid, pod := range pods {
		if deployment.gone > set.gone || set.gone > pod.marked || pod.marked >= pod.gone {
			w.Errorf("Deployment was deleted at version %d, the ReplicaSet at %d; Pod %s is terminating at %d and gone at %d",
				deployment.gone, set.gone, uid, pod.marked, pod.gone)
		}
	}
	if deployment.marked != 0 && deployment.marked < deployment.gone {
		w.Errorf("Deployment was terminating from version %d to %d", deployment.marked, deployment.gone)
	}
	w.expectGracefulEnd(pods)
	w.expectDeletesOnlyBy(collector)
}
