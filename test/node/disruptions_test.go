package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// kube-controller-manager deletes Pods of a missing Node after it was missing for 40 s, and looks every 20 s.
const orphanedPodTimeout = 3 * time.Minute

// Pods end in other ways than by the deletion of their owner: by an eviction, and with their Node. What they own goes after them,
// and what owns them stays.

func TestEviction_Primary_WhatAPodOwnsIsCollectedAfterItsContainers(t *testing.T) {
	runPrimary(t).testEviction(primaryUser)
}

func TestEviction_Companion_WhatAPodOwnsIsCollectedAfterItsContainers(t *testing.T) {
	runCompanion(t).testEviction(collectorUser)
}

func TestDrain_Primary_ReplacesPodsOneByOne_AndKeepsTheirOwners(t *testing.T) {
	runPrimary(t).testDrain(primaryUser)
}

func TestDrain_Companion_ReplacesPodsOneByOne_AndKeepsTheirOwners(t *testing.T) {
	notShort(t)
	runCompanion(t).testDrain(collectorUser)
}

func TestNodeDeletion_Primary_CollectsWhatTheNodeOwns_AndItsPods(t *testing.T) {
	runPrimary(t).testNodeDeletion()
}

func TestNodeDeletion_Companion_CollectsWhatTheNodeOwns_AndItsPods(t *testing.T) {
	notShort(t)
	runCompanion(t).testNodeDeletion()
}

// testEviction evicts a Pod that owns a ConfigMap.
func (w *env) testEviction(collector string) {
	w.Helper()
	made := w.createWorkload()
	pod := made.pods[0]
	owned := w.createOwned(pod)
	pods, configMaps := w.follow(w.kube.CoreV1().Pods(w.ns).Watch), w.follow(w.kube.CoreV1().ConfigMaps(w.ns).Watch)

	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod.Name, Namespace: w.ns}}
	if err := w.kube.PolicyV1().Evictions(w.ns).Evict(w.Context(), eviction); err != nil {
		w.Fatal(err)
	}
	ended := pods(1)[pod.UID]
	w.expectGracefulEnd(map[types.UID]*history{pod.UID: ended})
	if gone := configMaps(1)[owned]; gone.gone < ended.gone {
		w.Errorf("the ConfigMap was deleted at version %d, and the Pod that owns it at %d", gone.gone, ended.gone)
	}
	w.expectReplaced(made, pod)
	w.expectNoDeletesBy(collector)
}

// testDrain drains the node while a PodDisruptionBudget allows one Pod at a time to be missing.
func (w *env) testDrain(collector string) {
	w.Helper()
	wanted := w.deployment("drained", gracePeriod)
	made := w.createWorkloadOf(wanted)
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "drained"},
		Spec:       policyv1.PodDisruptionBudgetSpec{MaxUnavailable: new(intstr.FromInt32(1)), Selector: wanted.Spec.Selector},
	}
	if _, err := w.kube.PolicyV1().PodDisruptionBudgets(w.ns).Create(w.Context(), budget, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	owned := map[types.UID]types.UID{}
	for _, p := range made.pods {
		owned[p.UID] = w.createOwned(p)
	}
	pods, configMaps := w.follow(w.kube.CoreV1().Pods(w.ns).Watch), w.follow(w.kube.CoreV1().ConfigMaps(w.ns).Watch)

	w.Cleanup(func() {
		if _, err := shared.cluster.Kubectl(context.WithoutCancel(w.Context()), "uncordon", shared.node.Name()); err != nil {
			w.Error(err)
		}
	})
	out, err := shared.cluster.Kubectl(w.Context(), "drain", shared.node.Name(), "--pod-selector=app=drained", "--timeout="+timeout.String())
	if err != nil {
		w.Fatalf("%v\n%s", err, out)
	}
	ends, gone := pods(replicas), configMaps(replicas)
	maps.DeleteFunc(ends, func(_ types.UID, h *history) bool { return h.gone == 0 }) // those that replace them
	w.expectGracefulEnd(ends)
	for pod, configMap := range owned {
		if ends[pod] == nil || gone[configMap] == nil || gone[configMap].gone < ends[pod].gone {
			w.Errorf("Pod %s and the ConfigMap it owns were deleted at %v and %v", pod, ends[pod], gone[configMap])
		}
	}
	w.expectReplaced(made, made.pods...)
	w.expectNoDeletesBy(collector)
}

// testNodeDeletion deletes the Node object while its kubelet runs a Pod, as for a machine that leaves the cluster. The Node is created
// again afterwards.
func (w *env) testNodeDeletion() {
	w.Helper()
	nodes, csiNodes := w.kube.CoreV1().Nodes(), w.kube.StorageV1().CSINodes()
	node, err := nodes.Get(w.Context(), shared.node.Name(), metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	csiNode, err := csiNodes.Get(w.Context(), node.Name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	if !isOwnedBy(csiNode, node) {
		w.Fatalf("the CSINode is owned by %v", csiNode.OwnerReferences)
	}
	pod := w.createPod("alone")
	owned := w.createOwned(*pod)
	w.Cleanup(func() { w.createNode(node) })

	if err := nodes.Delete(w.Context(), node.Name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	// It has no namespace, and neither has its owner.
	devtest.Eventually(w, timeout, func() error {
		live, err := csiNodes.Get(w.Context(), node.Name, metav1.GetOptions{})
		if err == nil && live.UID == csiNode.UID {
			return errors.New("the CSINode is there")
		}
		return ignoreNotFound(err)
	})
	devtest.Eventually(w, orphanedPodTimeout, func() error {
		live, err := w.kube.CoreV1().ConfigMaps(w.ns).Get(w.Context(), "of-"+pod.Name, metav1.GetOptions{})
		if err != nil {
			return ignoreNotFound(err)
		}
		return fmt.Errorf("the ConfigMap with UID %s is there, want none with %s", live.UID, owned)
	})
	if _, err := w.kube.CoreV1().Pods(w.ns).Get(w.Context(), pod.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		w.Errorf("what the Pod owns is gone, and the Pod: %v", err)
	}
}

// createNode creates a Node and its CSINode as they were. The kubelet creates both only when it starts, and sets the status of the Node.
func (w *env) createNode(node *corev1.Node) {
	w.Helper()
	ctx := context.WithoutCancel(w.Context())
	again := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels, Annotations: node.Annotations}, Spec: node.Spec}
	again, err := w.kube.CoreV1().Nodes().Create(ctx, again, metav1.CreateOptions{})
	if err != nil {
		w.Error(err)
		return
	}
	csiNode := &storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{
		Name: again.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: again.Name, UID: again.UID}},
	}}
	if _, err := w.kube.StorageV1().CSINodes().Create(ctx, csiNode, metav1.CreateOptions{}); err != nil {
		w.Error(err)
	}
	err = devtest.Retry(ctx, timeout, 100*time.Millisecond, func() error {
		live, err := w.kube.CoreV1().Nodes().Get(ctx, node.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range live.Status.Conditions {
			if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
				return nil
			}
		}
		return fmt.Errorf("the Node is not ready: %v", live.Status.Conditions)
	})
	if err != nil {
		w.Error(err)
	}
}

// createPod creates a Pod that nothing owns, and waits until its container runs and the graph has it.
func (w *env) createPod(name string) *corev1.Pod {
	w.Helper()
	pod, err := w.kube.CoreV1().Pods(w.ns).Create(w.Context(), &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: podSpec()}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	devtest.Eventually(w, timeout, func() error {
		live, err := w.kube.CoreV1().Pods(w.ns).Get(w.Context(), name, metav1.GetOptions{})
		if err == nil && (live.Status.Phase != corev1.PodRunning || !w.collector.HasUID(pod.UID)) {
			err = fmt.Errorf("Pod %s is %s; in the graph: %t", name, live.Status.Phase, w.collector.HasUID(pod.UID))
		}
		return err
	})
	return pod
}

// createOwned creates a ConfigMap that a Pod owns, and waits until the graph has it. It returns its UID.
func (w *env) createOwned(pod corev1.Pod) types.UID {
	w.Helper()
	configMap, err := w.kube.CoreV1().ConfigMaps(w.ns).Create(w.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "of-" + pod.Name, OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID}},
	}}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	devtest.Eventually(w, timeout, func() error {
		if !w.collector.HasUID(configMap.UID) {
			return errors.New("the ConfigMap is not in the graph")
		}
		return nil
	})
	return configMap.UID
}

// expectReplaced waits until a workload has as many running Pods as before, without those that ended, and checks that their owners
// have stayed.
func (w *env) expectReplaced(made workload, ended ...corev1.Pod) {
	w.Helper()
	devtest.Eventually(w, timeout, func() error {
		list, err := w.kube.CoreV1().Pods(w.ns).List(w.Context(), metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(made.deployment.Spec.Selector)})
		if err != nil {
			return err
		}
		for _, p := range list.Items {
			for _, e := range ended {
				if p.UID == e.UID {
					return fmt.Errorf("Pod %s is there", p.Name)
				}
			}
		}
		return w.checkRunning(list.Items)
	})
	deployment, err := w.kube.AppsV1().Deployments(w.ns).Get(w.Context(), made.deployment.Name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	set, err := w.kube.AppsV1().ReplicaSets(w.ns).Get(w.Context(), made.set.Name, metav1.GetOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for owner, before := range map[metav1.Object]metav1.Object{deployment: made.deployment, set: made.set} {
		if owner.GetUID() != before.GetUID() || owner.GetDeletionTimestamp() != nil {
			w.Errorf("owner %s has UID %s and deletionTimestamp %v, want %s and none", owner.GetName(), owner.GetUID(), owner.GetDeletionTimestamp(), before.GetUID())
		}
	}
}

// expectNoDeletesBy checks that a collector has deleted no Pod.
func (w *env) expectNoDeletesBy(collector string) {
	w.Helper()
	for _, d := range w.deletionsUntil(1) {
		if d.User.Username == collector {
			w.Errorf("%s deleted Pod %s", collector, d.ObjectRef.Name)
		}
	}
}

func isOwnedBy(object, owner metav1.Object) bool {
	for _, r := range object.GetOwnerReferences() {
		if r.UID == owner.GetUID() {
			return true
		}
	}
	return false
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
