package node

import (
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// history is the deletion of an object as seen by a watch. Versions of all types are comparable.
type history struct {
	marked int // resourceVersion of its first event with a deletion timestamp
	gone   int // resourceVersion of its deletion
	pods   []*corev1.Pod
}

// waitForHistory returns the histories of a type's objects once a number of them are deleted.
type waitForHistory func(count int) map[types.UID]*history

// follow watches a type in the test's namespace from the beginning.
func (w *env) follow(open func(context.Context, metav1.ListOptions) (watch.Interface, error)) waitForHistory {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), timeout) // ends the watch
	w.Cleanup(cancel)
	stream, err := open(ctx, metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(stream.Stop)
	return func(count int) map[types.UID]*history {
		w.Helper()
		found, gone := map[types.UID]*history{}, 0
		for event := range stream.ResultChan() {
			if w.record(found, event); event.Type == watch.Deleted {
				gone++
			}
			if gone == count {
				return found
			}
		}
		w.Fatalf("watch ended after %d deletions, want %d", gone, count)
		return nil
	}
}

func (w *env) record(found map[types.UID]*history, event watch.Event) {
	w.Helper()
	object, err := meta.Accessor(event.Object)
	if err != nil {
		w.Fatalf("got watch event %v: %v", event, err)
	}
	version, err := strconv.Atoi(object.GetResourceVersion())
	if err != nil {
		w.Fatal(err)
	}
	h := found[object.GetUID()]
	if h == nil {
		h = &history{}
		found[object.GetUID()] = h
	}
	if h.marked == 0 && object.GetDeletionTimestamp() != nil {
		h.marked = version
	}
	if event.Type == watch.Deleted {
		h.gone = version
	}
	if pod, ok := event.Object.(*corev1.Pod); ok && pod.DeletionTimestamp != nil {
		h.pods = append(h.pods, pod)
	}
}

// workloadHistory follows all objects of a workload.
type workloadHistory struct {
	deployments, sets, pods waitForHistory
}

func (w *env) followWorkload() workloadHistory {
	w.Helper()
	return workloadHistory{
		deployments: w.follow(w.kube.AppsV1().Deployments(w.ns).Watch),
		sets:        w.follow(w.kube.AppsV1().ReplicaSets(w.ns).Watch),
		pods:        w.follow(w.kube.CoreV1().Pods(w.ns).Watch),
	}
}

// expectGracefulEnd checks that Pods were terminating with the expected grace period, and
// existed until their containers had ended by themselves.
func (w *env) expectGracefulEnd(pods map[types.UID]*history) {
	w.Helper()
	for _, h := range pods {
		first, last := h.pods[0], h.pods[len(h.pods)-1]
		if grace := *first.DeletionGracePeriodSeconds; grace != gracePeriod {
			w.Errorf("Pod %s is terminating with a grace period of %d s, want %d s", first.Name, grace, gracePeriod)
		}
		for _, p := range h.pods { // the kubelet sets it to 0 at the end
			if *p.DeletionGracePeriodSeconds != gracePeriod && terminatedState(p) == nil {
				w.Errorf("Pod %s has a grace period of %d s while its container runs", p.Name, *p.DeletionGracePeriodSeconds)
			}
		}
		container := terminatedState(last)
		if container == nil {
			w.Errorf("Pod %s was deleted before its container ended: %v", last.Name, last.Status.ContainerStatuses)
			continue
		}
		if container.ExitCode != 0 {
			w.Errorf("container of Pod %s was killed: %v", last.Name, container)
		}
		requestedAt := first.DeletionTimestamp.Add(-gracePeriod * time.Second)
		if took := container.FinishedAt.Sub(requestedAt); took < terminationTime-time.Second { // both are rounded to seconds
			w.Errorf("container of Pod %s ended after %s, want %s", last.Name, took, terminationTime)
		}
	}
}

func terminatedState(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	if len(pod.Status.ContainerStatuses) != 1 {
		return nil
	}
	return pod.Status.ContainerStatuses[0].State.Terminated
}

// expectDeletesOnlyBy checks that Pods were deleted only by the collector, each with its own grace
// period, and by the kubelet after that.
func (w *env) expectDeletesOnlyBy(collector string) {
	w.Helper()
	by := map[string]int{}
	for _, d := range w.deletions() {
		by[d.User.Username]++
		if seconds := d.RequestObject.GracePeriodSeconds; seconds != nil && !byNode(d) {
			w.Errorf("%s deleted Pod %s with a grace period of %d s", d.User.Username, d.ObjectRef.Name, *seconds)
		}
	}
	node := "system:node:" + shared.node.Name()
	if by[collector] < replicas || by[node] < replicas || len(by) != 2 {
		w.Errorf("Pods were deleted by %v, want %s and %s", by, collector, node)
	}
}
