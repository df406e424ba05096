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

// What the end-to-end tests of Kubernetes ask of any conformant cluster, with
// its real controllers at work beside the collector. 57 to 59 need none, and
// are elsewhere.

func by(policy metav1.DeletionPropagation) metav1.DeleteOptions {
	return metav1.DeleteOptions{PropagationPolicy: ptr.To(policy)}
}

// absent waits until a read answers that there is no such object.
func (w *world) absent(what string, read func() error) {
	w.Helper()
	devtest.Eventually(w, patience, func() error {
		if err := read(); !apierrors.IsNotFound(err) {
			return fmt.Errorf("%s is still there: %w", what, err)
		}
		return nil
	})
}

func (w *world) rcGone(rc *corev1.ReplicationController) {
	w.Helper()
	w.absent(rc.Name, func() error {
		_, err := w.kube.CoreV1().ReplicationControllers(w.ns).Get(w.Context(), rc.Name, metav1.GetOptions{})
		return err
	})
}

func (w *world) deleteRC(rc *corev1.ReplicationController, options metav1.DeleteOptions) {
	w.Helper()
	if err := w.kube.CoreV1().ReplicationControllers(w.ns).Delete(w.Context(), rc.Name, options); err != nil {
		w.Fatal(err)
	}
}

func TestScenario50_AReplicationControllerTakesItsPodsAlong(t *testing.T) {
	w := newWorld(t)
	rc, _ := w.replicate("rc", 10)
	w.deleteRC(rc, by(background))
	w.rcGone(rc)
	w.podsOf("rc", 0)
	w.calm()
	w.podsOf("rc", 0)
}

func TestScenario40_51_OrphanedPodsOfAReplicationControllerStay(t *testing.T) {
	w := newWorld(t)
	rc, pods := w.replicate("rc", 30)
	w.deleteRC(rc, by(orphan))
	w.rcGone(rc)
	w.orphaned(pods)
}

func TestScenario52_WithoutAWishThePodsOfAReplicationControllerStay(t *testing.T) {
	w := newWorld(t)
	rc, pods := w.replicate("rc", 2)
	w.deleteRC(rc, metav1.DeleteOptions{})
	w.rcGone(rc)
	w.orphaned(pods)
}

func TestScenario53_ADeploymentTakesItsReplicaSetAndPodsAlong(t *testing.T) {
	w := newWorld(t)
	deployment, set, _ := w.deploy("app", 2)
	if err := w.kube.AppsV1().Deployments(w.ns).Delete(t.Context(), deployment.Name, by(background)); err != nil {
		t.Fatal(err)
	}
	w.absent("the ReplicaSet", func() error {
		_, err := w.kube.AppsV1().ReplicaSets(w.ns).Get(t.Context(), set.Name, metav1.GetOptions{})
		return err
	})
	w.podsOf("app", 0)
	w.calm()
	w.podsOf("app", 0)
}

// G-70: the Deployment's controller does not adopt the ReplicaSet again while
// the Deployment is on its way out, and the ReplicaSet's keeps its pods.
func TestScenario54_G70_AnOrphanedReplicaSetHasNoController(t *testing.T) {
	w := newWorld(t)
	deployment, set, pods := w.deploy("app", 2)
	if err := w.kube.AppsV1().Deployments(w.ns).Delete(t.Context(), deployment.Name, by(orphan)); err != nil {
		t.Fatal(err)
	}
	w.absent("the Deployment", func() error {
		_, err := w.kube.AppsV1().Deployments(w.ns).Get(t.Context(), deployment.Name, metav1.GetOptions{})
		return err
	})
	w.calm()
	live, err := w.kube.AppsV1().ReplicaSets(w.ns).Get(t.Context(), set.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if live.UID != set.UID || live.DeletionTimestamp != nil || len(live.OwnerReferences) != 0 {
		t.Errorf("the ReplicaSet is %v, deleted %v, owned by %v", live.UID, live.DeletionTimestamp, live.OwnerReferences)
	}
	w.ownedByAlone(pods, set)
}

// ownedByAlone makes sure that pods are those that there were, and that their
// only owner is the ReplicaSet.
func (w *world) ownedByAlone(pods []corev1.Pod, set *appsv1.ReplicaSet) {
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

func TestScenario55_InTheForegroundTheReplicationControllerGoesLast(t *testing.T) {
	w := newWorld(t)
	const replicas = 10
	rc, pods := w.replicate("rc", replicas)
	podEnds, rcEnds := w.deletions(pod), w.deletions(replicationController)
	w.deleteRC(rc, by(foreground))
	w.rcGone(rc)
	last := rcEnds(1)[string(rc.UID)]
	ends := podEnds(replicas)
	for _, p := range pods {
		if end, ok := ends[string(p.UID)]; !ok || end > last {
			t.Errorf("pod %s went at version %d, its owner at %d", p.Name, end, last)
		}
	}
	w.podsOf("rc", 0)
}

func TestScenario41_56_PodsWithASecondOwnerThatLivesStay(t *testing.T) {
	w := newWorld(t)
	goes, pods := w.replicate("goes", 10)
	stays, _ := w.replicate("stays", 0)
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
	w.deleteRC(goes, by(foreground))
	w.rcGone(goes)
	w.podsOf("goes", len(kept))
	w.calm()
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

// The pods of a Job are held by a finalizer of the Job's controller, which
// takes it off once the Job is gone.
func TestScenario60_ACronJobLeavesNeitherJobsNorPods(t *testing.T) {
	w := newWorld(t)
	cron, job, _ := w.cron("cron", 2)
	if err := w.kube.BatchV1().CronJobs(w.ns).Delete(t.Context(), cron.Name, by(background)); err != nil {
		t.Fatal(err)
	}
	w.absent("the Job", func() error {
		_, err := w.kube.BatchV1().Jobs(w.ns).Get(t.Context(), job.Name, metav1.GetOptions{})
		return err
	})
	w.podsOf("cron", 0)
}
