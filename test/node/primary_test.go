package node

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
)

// primaryUser is the user name of Gleaner: see inside.OperatorConfig.
const primaryUser = "gleaner"

// runPrimary runs Gleaner as the only collector until the test ends.
func runPrimary(t *testing.T) *env {
	t.Helper()
	startCluster(t)
	return runOperator(t, nil)
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
	w.expectGracefulEnd(w.podsBefore(ends.deployments(1)[made.deployment.UID], ends, made))
}

// The same, with the grace period of the request: kubectl delete deployment --grace-period=25.
func TestInheritGracePeriod_Primary_OfARequestIsThatOfThePods(t *testing.T) {
	w := runPrimary(t)
	w.applyPolicy("drain", map[string]any{
		"resources": []any{map[string]any{"apiGroups": []any{"apps"}, "resources": []any{"deployments"}}},
		"fixed":     map[string]any{"propagate": map[string]any{"decision": "Foreground", "inheritGracePeriod": true}},
		"mode":      "Enforce",
	})
	w.waitForGracePeriods()
	made := w.createWorkloadWith(1)
	ends := w.followWorkload()
	w.deleteWith(made.deployment.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](gracePeriod)})
	w.expectGracefulEnd(w.podsBefore(ends.deployments(1)[made.deployment.UID], ends, made))
}

// waitForGracePeriods waits until the API server calls the webhook that stores grace periods of requests.
func (w *env) waitForGracePeriods() {
	w.Helper()
	deployments, attempt := w.kube.AppsV1().Deployments(w.ns), 0
	devtest.Eventually(w, timeout, func() error {
		attempt++
		probe := w.deployment(fmt.Sprintf("probe-%d", attempt), gracePeriod)
		probe.Finalizers, probe.Spec.Paused = []string{"test.gleaner.dev/stay"}, true // so it has no ReplicaSet
		if _, err := deployments.Create(w.Context(), probe, metav1.CreateOptions{}); err != nil {
			return err
		}
		devtest.Eventually(w, timeout, func() error {
			live, err := deployments.Get(w.Context(), probe.Name, metav1.GetOptions{})
			if err == nil && !slices.Contains(live.Finalizers, graph.Hold) {
				err = errors.New("the probe has no hold")
			}
			return err
		})
		w.deleteWith(probe.Name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](1)})
		live, err := deployments.Get(w.Context(), probe.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if _, err := deployments.Patch(w.Context(), probe.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
		if _, stored := live.Annotations[objectstate.GracePeriodAnnotation]; !stored {
			return errors.New("the grace period of a request is not stored")
		}
		return nil
	})
}

// podsBefore checks that Pods were deleted before their ReplicaSet, and that before its Deployment. It returns the Pods'.
func (w *env) podsBefore(deployment *history, ends workloadHistory, made workload) map[types.UID]*history {
	w.Helper()
	set, pods := ends.sets(1)[made.set.UID], ends.pods(replicas)
	for uid, pod := range pods {
		if pod.gone > set.gone || set.gone > deployment.gone {
			w.Errorf("Pod %s was deleted at version %d, the ReplicaSet at %d, the Deployment at %d", uid, pod.gone, set.gone, deployment.gone)
		}
	}
	return pods
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
	w.expectGracefulEnd(w.podsBefore(deployment, ends, made))
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
