package integration

import (
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// What the end-to-end tests of Kubernetes require of a conformant cluster, with
// its real controllers running. 57 to 59 need no controllers, and are in
// types_test.go and foreground_test.go.

func deleteOptions(policy metav1.DeletionPropagation) metav1.DeleteOptions {
	return metav1.DeleteOptions{PropagationPolicy: ptr.To(policy)}
}

// waitForNotFound waits until a read returns NotFound.
func (w *env) waitForNotFound(what string, read func() error) {
	w.Helper()
	devtest.Eventually(w, timeout, func() error {
		if err := read(); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s still exists: %w", what, err)
		}
		return nil
	})
}

func (w *env) waitForRCDeletion(rc *corev1.ReplicationController) {
	w.Helper()
	w.waitForNotFound(rc.Name, func() error {
		_, err := w.kube.CoreV1().ReplicationControllers(w.ns).Get(w.Context(), rc.Name, metav1.GetOptions{})
		return err
	})
}

func (w *env) deleteRC(rc *corev1.ReplicationController, options metav1.DeleteOptions) {
	w.Helper()
	if err := w.kube.CoreV1().ReplicationControllers(w.ns).Delete(w.Context(), rc.Name, options); err != nil {
		w.Fatal(err)
	}
}

func TestScenario50_Background_DeletesPodsOfAController(t *testing.T) {
	w := newEnv(t)
	rc, _ := w.createRCWithPods("rc", 10)
	w.deleteRC(rc, deleteOptions(background))
	w.waitForRCDeletion(rc)
	w.waitForPods("rc", 0)
	w.waitUntilIdle()
	w.waitForPods("rc", 0)
}

func TestScenario40_51_Orphan_KeepsPodsOfAController(t *testing.T) {
	w := newEnv(t)
	rc, pods := w.createRCWithPods("rc", 30)
	w.deleteRC(rc, deleteOptions(orphan))
	w.waitForRCDeletion(rc)
	w.expectOrphaned(pods)
}

func TestScenario52_NoPolicy_KeepsPodsOfAReplicationController(t *testing.T) {
	w := newEnv(t)
	rc, pods := w.createRCWithPods("rc", 2)
	w.deleteRC(rc, metav1.DeleteOptions{})
	w.waitForRCDeletion(rc)
	w.expectOrphaned(pods)
}

func TestScenario53_Background_DeletesADeploymentsPods(t *testing.T) {
	w := newEnv(t)
	deployment, set, _ := w.createDeployment("app", 2)
	if err := w.kube.AppsV1().Deployments(w.ns).Delete(t.Context(), deployment.Name, deleteOptions(background)); err != nil {
		t.Fatal(err)
	}
	w.waitForNotFound("the ReplicaSet", func() error {
		_, err := w.kube.AppsV1().ReplicaSets(w.ns).Get(t.Context(), set.Name, metav1.GetOptions{})
		return err
	})
	w.waitForPods("app", 0)
	w.waitUntilIdle()
	w.waitForPods("app", 0)
}

// G-70: the Deployment's controller does not adopt the ReplicaSet again while
// the Deployment is terminating, and the ReplicaSet keeps its pods.
func TestScenario54_G70_OrphanedReplicaSet_HasNoController(t *testing.T) {
	w := newEnv(t)
	deployment, set, pods := w.createDeployment("app", 2)
	if err := w.kube.AppsV1().Deployments(w.ns).Delete(t.Context(), deployment.Name, deleteOptions(orphan)); err != nil {
		t.Fatal(err)
	}
	w.waitForNotFound("the Deployment", func() error {
		_, err := w.kube.AppsV1().Deployments(w.ns).Get(t.Context(), deployment.Name, metav1.GetOptions{})
		return err
	})
	w.waitUntilIdle()
	live, err := w.kube.AppsV1().ReplicaSets(w.ns).Get(t.Context(), set.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if live.UID != set.UID || live.DeletionTimestamp != nil || len(live.OwnerReferences) != 0 {
		t.Errorf("the ReplicaSet is %v, deleted %v, owned by %v", live.UID, live.DeletionTimestamp, live.OwnerReferences)
	}
	w.expectOnlyOwner(pods, set)
}

// expectOnlyOwner checks that the pods are unchanged and that the ReplicaSet is their
// only owner.
func (w *env) expectOnlyOwner(pods []corev1.Pod, set *appsv1.ReplicaSet) {
	w.Helper()
	for _, p := range pods {
		live, err := w.kube.CoreV1().Pods(w.ns).Get(w.Context(), p.Name, metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		if live.UID != p.UID || live.DeletionTimestamp != nil || len(live.OwnerReferences) != 1 || live.OwnerReferences[0].UID != set.UID {
			w.Errorf("pod %s: deleted %v, owners %v", p.Name, live.DeletionTimestamp, live.OwnerReferences)
		}
	}
}

func TestScenario55_Foreground_DeletesTheControllerLast(t *testing.T) {
	w := newEnv(t)
	const replicas = 10
	rc, pods := w.createRCWithPods("rc", replicas)
	podEnds, rcEnds := w.watchDeletions(pod), w.watchDeletions(replicationController)
	w.deleteRC(rc, deleteOptions(foreground))
	w.waitForRCDeletion(rc)
	last := rcEnds(1)[string(rc.UID)]
	ends := podEnds(replicas)
	for _, p := range pods {
		if end, ok := ends[string(p.UID)]; !ok || end > last {
			t.Errorf("pod %s was deleted at resourceVersion %d, its owner at %d", p.Name, end, last)
		}
	}
	w.waitForPods("rc", 0)
}

func TestScenario41_56_PodsWithASecondOwner_Stay(t *testing.T) {
	w := newEnv(t)
	goes, pods := w.createRCWithPods("goes", 10)
	stays, _ := w.createRCWithPods("stays", 0)
	kept := pods[:len(pods)/2]
	for i := range kept {
		patch := fmt.Appendf(nil, `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ReplicationController","name":%q,"uid":%q}]}}`, stays.Name, stays.UID)
		live, err := w.kube.CoreV1().Pods(w.ns).Patch(t.Context(), kept[i].Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(live.OwnerReferences) != 2 {
			t.Fatalf("pod %s has owners %v", live.Name, live.OwnerReferences)
		}
	}
	w.deleteRC(goes, deleteOptions(foreground))
	w.waitForRCDeletion(goes)
	w.waitForPods("goes", len(kept))
	w.waitUntilIdle()
	for _, p := range kept {
		live, err := w.kube.CoreV1().Pods(w.ns).Get(t.Context(), p.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if live.DeletionTimestamp != nil || len(live.OwnerReferences) != 1 || live.OwnerReferences[0].UID != stays.UID {
			t.Errorf("pod %s: deleted %v, owners %v", p.Name, live.DeletionTimestamp, live.OwnerReferences)
		}
	}
}

// The Job's controller puts a finalizer on its pods, and removes it once the Job is
// deleted.
func TestScenario60_CronJob_LeavesNoJobsOrPods(t *testing.T) {
	w := newEnv(t)
	cron, job, _ := w.createCronJob("cron", 2)
	if err := w.kube.BatchV1().CronJobs(w.ns).Delete(t.Context(), cron.Name, deleteOptions(background)); err != nil {
		t.Fatal(err)
	}
	w.waitForNotFound("the Job", func() error {
		_, err := w.kube.BatchV1().Jobs(w.ns).Get(t.Context(), job.Name, metav1.GetOptions{})
		return err
	})
	w.waitForPods("cron", 0)
}
