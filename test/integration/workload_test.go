package integration

import (
	"context"
	"fmt"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// There is no kubelet, so the pods of workloads stay pending, and are deleted
// immediately.

// replicationController has no pods of its own: tests create them.
var replicationController = &kind{
	resource:   schema.GroupVersionResource{Version: "v1", Resource: "replicationcontrollers"},
	kind:       "ReplicationController",
	namespaced: true,
	spec: map[string]any{
		"replicas": int64(0),
		"selector": map[string]any{"app": "none"},
		"template": map[string]any{
			"metadata": map[string]any{"labels": map[string]any{"app": "none"}},
			"spec":     map[string]any{"containers": []any{map[string]any{"name": "pause", "image": "pause"}}},
		},
	},
}

func podTemplate(name string, restart corev1.RestartPolicy) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": name}},
		Spec: corev1.PodSpec{
			RestartPolicy: restart,
			Containers:    []corev1.Container{{Name: "pause", Image: "pause"}},
		},
	}
}

// createRCWithPods creates a ReplicationController and waits for its pods.
func (w *env) createRCWithPods(name string, replicas int) (*corev1.ReplicationController, []corev1.Pod) {
	w.Helper()
	rc, err := w.kube.CoreV1().ReplicationControllers(w.ns).Create(w.Context(), &corev1.ReplicationController{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ReplicationControllerSpec{
			Replicas: ptr.To(int32(replicas)), Selector: map[string]string{"app": name}, Template: ptr.To(podTemplate(name, corev1.RestartPolicyAlways)),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return rc, w.waitForPods(name, replicas)
}

// createDeployment creates a Deployment and waits for its ReplicaSet and pods.
func (w *env) createDeployment(name string, replicas int) (*appsv1.Deployment, *appsv1.ReplicaSet, []corev1.Pod) {
	w.Helper()
	deployment, err := w.kube.AppsV1().Deployments(w.ns).Create(w.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(int32(replicas)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}},
			Template: podTemplate(name, corev1.RestartPolicyAlways),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	pods := w.waitForPods(name, replicas)
	sets, err := w.kube.AppsV1().ReplicaSets(w.ns).List(w.Context(), appSelector(name))
	if err != nil {
		w.Fatal(err)
	}
	if len(sets.Items) != 1 {
		w.Fatalf("the Deployment has %d ReplicaSets", len(sets.Items))
	}
	return deployment, &sets.Items[0], pods
}

// createCronJob creates a CronJob that is never due, and a Job as its controller
// would, and waits for the Job's pods.
func (w *env) createCronJob(name string, pods int) (*batchv1.CronJob, *batchv1.Job, []corev1.Pod) {
	w.Helper()
	spec := batchv1.JobSpec{Parallelism: ptr.To(int32(pods)), Completions: ptr.To(int32(pods)), Template: podTemplate(name, corev1.RestartPolicyNever)}
	cron, err := w.kube.BatchV1().CronJobs(w.ns).Create(w.Context(), &batchv1.CronJob{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       batchv1.CronJobSpec{Schedule: "0 0 31 2 *", JobTemplate: batchv1.JobTemplateSpec{Spec: spec}},
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	job, err := w.kube.BatchV1().Jobs(w.ns).Create(w.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name + "-1",
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cron, batchv1.SchemeGroupVersion.WithKind("CronJob"))},
		},
		Spec: spec,
	}, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return cron, job, w.waitForPods(name, pods)
}

func appSelector(app string) metav1.ListOptions {
	return metav1.ListOptions{LabelSelector: labels.Set{"app": app}.String()}
}

// listPods lists the pods of a workload.
func (w *env) listPods(app string) []corev1.Pod {
	w.Helper()
	list, err := w.kube.CoreV1().Pods(w.ns).List(w.Context(), appSelector(app))
	if err != nil {
		w.Fatal(err)
	}
	return list.Items
}

// waitForPods waits until a workload has this number of pods and the graph has them.
func (w *env) waitForPods(app string, count int) []corev1.Pod {
	w.Helper()
	var found []corev1.Pod
	devtest.Eventually(w, timeout, func() error {
		found = w.listPods(app)
		if len(found) != count {
			return fmt.Errorf("%s has %d pods, want %d", app, len(found), count)
		}
		for _, p := range found {
			if !w.collector.HasUID(p.UID) {
				return fmt.Errorf("pod %s is not in the graph", p.Name)
			}
		}
		return nil
	})
	return found
}

// expectOrphaned checks that pods still exist, are not terminating, and have no
// owners.
func (w *env) expectOrphaned(pods []corev1.Pod) {
	w.Helper()
	w.waitUntilIdle()
	for _, p := range pods {
		live, err := w.kube.CoreV1().Pods(w.ns).Get(w.Context(), p.Name, metav1.GetOptions{})
		if err != nil {
			w.Fatal(err)
		}
		if live.UID != p.UID || live.DeletionTimestamp != nil || len(live.OwnerReferences) != 0 {
			w.Errorf("pod %s: UID %s (was %s), deleted %v, owners %v; decided: %v", p.Name, live.UID, p.UID,
				live.DeletionTimestamp, live.OwnerReferences, w.collector.Records(p.UID))
		}
	}
}

// watchDeletions watches the deletions of a type in the test's namespace. The returned function
// waits for a number of them, and returns the resourceVersion of each deletion, by UID.
func (w *env) watchDeletions(k *kind) func(count int) map[string]int {
	w.Helper()
	list, err := w.client(k, "").List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(w.Context(), 2*timeout) // ends the watch
	w.Cleanup(cancel)
	stream, err := w.client(k, "").Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(stream.Stop)
	return func(count int) map[string]int {
		w.Helper()
		ends := map[string]int{}
		for event := range stream.ResultChan() {
			o, ok := event.Object.(*unstructured.Unstructured)
			if !ok {
				w.Fatalf("got watch event %v", event)
			}
			if event.Type != watch.Deleted {
				continue
			}
			version, err := strconv.Atoi(o.GetResourceVersion())
			if err != nil {
				w.Fatal(err)
			}
			ends[string(o.GetUID())] = version
			if len(ends) == count {
				return ends
			}
		}
		w.Fatalf("the watch ended after %d deletions, want %d", len(ends), count)
		return nil
	}
}
