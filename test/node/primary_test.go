package node

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/test/inside"
)

// primaryUser is whom Gleaner works as: see inside.Operator.
const primaryUser = "gleaner"

// primary runs Gleaner as the only collector until the test ends.
func primary(t *testing.T) *world {
	t.Helper()
	start(t)
	config, err := inside.Operator(shared.cluster)
	if err != nil {
		t.Fatal(err)
	}
	collector, stop, err := inside.Run(inside.Options(config))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
	})
	return newWorld(t, collector)
}

func TestScenario55_G58_ADeploymentWaitsForContainers(t *testing.T) {
	w := primary(t)
	made := w.deploy()
	w.foregroundWaits(made, primaryUser)
}

func TestScenario53_G49_PodsOutliveTheirDeployment(t *testing.T) {
	w := primary(t)
	made := w.deploy()
	w.backgroundDoesNot(made, primaryUser)
}

// foregroundWaits deletes a Deployment in the foreground and checks that it and its
// ReplicaSet are there until the containers have ended.
func (w *world) foregroundWaits(made workload, collector string) {
	w.Helper()
	ends := w.endings()
	w.delete(made.deployment, metav1.DeletePropagationForeground)
	deployment := ends.deployments(1)[made.deployment.UID]
	for _, p := range made.pods {
		if w.containersRun(p) {
			w.Errorf("the Deployment is gone, and a container of Pod %s runs", p.Name)
		}
	}
	set, pods := ends.sets(1)[made.set.UID], ends.pods(replicas)
	for uid, pod := range pods {
		if pod.gone > set.gone || set.gone > deployment.gone {
			w.Errorf("Pod %s is gone at version %d, the ReplicaSet at %d, the Deployment at %d", uid, pod.gone, set.gone, deployment.gone)
		}
	}
	w.endedInTheirTime(pods)
	w.askedByAlone(collector)
}

// backgroundDoesNot deletes a Deployment in the background and checks that it is gone
// first, and its Pods only when their containers have ended.
func (w *world) backgroundDoesNot(made workload, collector string) {
	w.Helper()
	ends := w.endings()
	w.delete(made.deployment, metav1.DeletePropagationBackground)
	deployment, set := ends.deployments(1)[made.deployment.UID], ends.sets(1)[made.set.UID]
	pods := ends.pods(replicas)
	for uid, pod := range pods {
		if deployment.gone > set.gone || set.gone > pod.marked || pod.marked >= pod.gone {
			w.Errorf("the Deployment is gone at version %d, the ReplicaSet at %d; Pod %s is terminating at %d and gone at %d",
				deployment.gone, set.gone, uid, pod.marked, pod.gone)
		}
	}
	if deployment.marked != 0 && deployment.marked < deployment.gone {
		w.Errorf("the Deployment was terminating from version %d to %d", deployment.marked, deployment.gone)
	}
	w.endedInTheirTime(pods)
	w.askedByAlone(collector)
}
