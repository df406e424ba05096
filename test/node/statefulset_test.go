package node

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// The claims of a StatefulSet are owned by it, or by a Pod that is scaled away, if its persistentVolumeClaimRetentionPolicy says so:
// https://kubernetes.io/docs/concepts/workloads/controllers/statefulset/#persistentvolumeclaim-retention.

func TestStatefulSet_Primary_ItsClaimsGoAfterTheContainersThatUseThem(t *testing.T) {
	runPrimary(t).testClaims()
}

func TestStatefulSet_Companion_ItsClaimsGoAfterTheContainersThatUseThem(t *testing.T) {
	notShort(t)
	runCompanion(t).testClaims()
}

func TestStatefulSet_Primary_APolicyKeepsItsClaims(t *testing.T) {
	runPrimary(t).testKeptClaims()
}

func TestStatefulSet_Companion_APolicyKeepsItsClaims(t *testing.T) {
	runCompanion(t).testKeptClaims()
}

// testClaims scales a StatefulSet down, and deletes it in the foreground.
func (w *env) testClaims() {
	w.Helper()
	set, pods, claims := w.createStatefulSet()
	podEnds, claimEnds := w.follow(w.kube.CoreV1().Pods(w.ns).Watch), w.follow(w.kube.CoreV1().PersistentVolumeClaims(w.ns).Watch)
	setEnds := w.follow(w.kube.AppsV1().StatefulSets(w.ns).Watch)

	if _, err := w.kube.AppsV1().StatefulSets(w.ns).Patch(w.Context(), set.Name, types.MergePatchType, []byte(`{"spec": {"replicas": 1}}`), metav1.PatchOptions{}); err != nil {
		w.Fatal(err)
	}
	w.expectClaimAfterPod(podEnds(1)[pods[1].UID], claimEnds(1)[claims[1].UID])
	if live, err := w.kube.CoreV1().PersistentVolumeClaims(w.ns).Get(w.Context(), claims[0].Name, metav1.GetOptions{}); err != nil || live.DeletionTimestamp != nil {
		w.Errorf("after scaling down, claim %s: %v, %v", claims[0].Name, live.DeletionTimestamp, err)
	}

	if err := w.kube.AppsV1().StatefulSets(w.ns).Delete(w.Context(), set.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationForeground)}); err != nil {
		w.Fatal(err)
	}
	pod := podEnds(1)[pods[0].UID]
	w.expectClaimAfterPod(pod, claimEnds(1)[claims[0].UID])
	if gone := setEnds(1)[set.UID]; gone.gone < pod.gone {
		w.Errorf("the StatefulSet was deleted at version %d, and its Pod at %d", gone.gone, pod.gone)
	}
}

// testKeptClaims deletes a StatefulSet whose claims a policy keeps.
func (w *env) testKeptClaims() {
	w.Helper()
	w.applyPolicy("keep-claims", map[string]any{
		"resources": []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"persistentvolumeclaims"}}},
		"fixed":     map[string]any{"collect": map[string]any{"decision": "Orphan"}},
		"mode":      "Enforce", "onFault": "Hold", "priority": int64(10),
	})
	set, pods, claims := w.createStatefulSet()
	podEnds := w.follow(w.kube.CoreV1().Pods(w.ns).Watch)
	if err := w.kube.AppsV1().StatefulSets(w.ns).Delete(w.Context(), set.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}); err != nil {
		w.Fatal(err)
	}
	ends := podEnds(len(pods))
	for _, p := range pods {
		w.expectGracefulEnd(map[types.UID]*history{p.UID: ends[p.UID]})
	}
	for _, c := range claims {
		devtest.Eventually(w, timeout, func() error {
			live, err := w.kube.CoreV1().PersistentVolumeClaims(w.ns).Get(w.Context(), c.Name, metav1.GetOptions{})
			switch {
			case err != nil:
				w.Fatal(err)
			case live.UID != c.UID || live.DeletionTimestamp != nil:
				w.Fatalf("claim %s was deleted", c.Name)
			case len(live.OwnerReferences) != 0:
				return fmt.Errorf("claim %s is owned by %v", c.Name, live.OwnerReferences)
			}
			return nil
		})
	}
}

// expectClaimAfterPod checks that a claim existed until the container of the Pod that used it had ended.
func (w *env) expectClaimAfterPod(pod, claim *history) {
	w.Helper()
	if pod == nil || claim == nil {
		w.Fatalf("another Pod or claim was deleted: %v, %v", pod, claim)
	}
	w.expectGracefulEnd(map[types.UID]*history{"": pod})
	if claim.gone < pod.gone {
		w.Errorf("the claim was deleted at version %d, and its Pod at %d", claim.gone, pod.gone)
	}
}

// createStatefulSet creates a StatefulSet with a claim for each Pod, and waits until its containers run, and its claims have owners and
// are in the graph.
func (w *env) createStatefulSet() (set *appsv1.StatefulSet, pods []corev1.Pod, claims []corev1.PersistentVolumeClaim) {
	w.Helper()
	for i := range replicas {
		w.createVolume(fmt.Sprintf("%s-%d", w.ns, i))
	}
	spec := podSpec()
	spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	selected := map[string]string{"app": "db"}
	set, err := w.kube.AppsV1().StatefulSets(w.ns).Create(w.Context(), &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "db"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](replicas), Selector: &metav1.LabelSelector{MatchLabels: selected}, PodManagementPolicy: appsv1.ParallelPodManagement,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: selected}, Spec: spec},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &w.ns, Resources: volumeSize(),
				},
			}},
			PersistentVolumeClaimRetentionPolicy: &appsv1.StatefulSetPersistentVolumeClaimRetentionPolicy{
				WhenDeleted: appsv1.DeletePersistentVolumeClaimRetentionPolicyType, WhenScaled: appsv1.DeletePersistentVolumeClaimRetentionPolicyType,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	devtest.Eventually(w, timeout, func() error {
		list, err := w.kube.CoreV1().Pods(w.ns).List(w.Context(), metav1.ListOptions{}) // sorted by name
		if err != nil {
			return err
		}
		pods = list.Items
		owned, err := w.kube.CoreV1().PersistentVolumeClaims(w.ns).List(w.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		claims = owned.Items
		for _, c := range claims {
			if !isOwnedBy(&c, set) || !w.collector.HasUID(c.UID) {
				return fmt.Errorf("claim %s is %s, owned by %v; in the graph: %t", c.Name, c.Status.Phase, c.OwnerReferences, w.collector.HasUID(c.UID))
			}
		}
		if len(claims) != replicas {
			return errors.New("claims are missing")
		}
		return w.checkRunning(pods)
	})
	return set, pods, claims
}

// createVolume creates a volume in a folder of this machine, for the claims of the test, until the test ends.
func (w *env) createVolume(name string) {
	w.Helper()
	volumes := w.kube.CoreV1().PersistentVolumes()
	_, err := volumes.Create(w.Context(), &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			StorageClassName: w.ns, Capacity: volumeSize().Requests, AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimRetain,
			PersistentVolumeSource:        corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: w.TempDir()}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() {
		if err := volumes.Delete(context.WithoutCancel(w.Context()), name, metav1.DeleteOptions{}); err != nil {
			w.Error(err)
		}
	})
}

func volumeSize() corev1.VolumeResourceRequirements {
	return corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Mi")}}
}
