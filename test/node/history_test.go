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

// history is what a watch shows of an object's end. Versions of all types compare.
type history struct {
	marked int // version at which it was first seen terminating
	gone   int // version at which it was gone
	pods   []*corev1.Pod
}

// watched gives the histories of the objects of a type once so many are gone.
type watched func(count int) map[types.UID]*history

// follow watches a type in the test's namespace from its beginning.
func (w *world) follow(open func(context.Context, metav1.ListOptions) (watch.Interface, error)) watched {
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
		w.Fatalf("the watch ended after %d deletions, want %d", gone, count)
		return nil
	}
}

func (w *world) record(found map[types.UID]*history, event watch.Event) {
	w.Helper()
	object, err := meta.Accessor(event.Object)
	if err != nil {
		w.Fatalf("the watch shows %v: %v", event, err)
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

// endings follows all that a workload consists of.
type endings struct {
	deployments, sets, pods watched
}

func (w *world) endings() endings {
	w.Helper()
	return endings{
		deployments: w.follow(w.kube.AppsV1().Deployments(w.ns).Watch),
		sets:        w.follow(w.kube.AppsV1().ReplicaSets(w.ns).Watch),
		pods:        w.follow(w.kube.CoreV1().Pods(w.ns).Watch),
	}
}

// endedInTheirTime checks that Pods were terminating with their own grace period, and
// there, until their containers had ended as they wanted.
func (w *world) endedInTheirTime(pods map[types.UID]*history) {
	w.Helper()
	for _, h := range pods {
		first, last := h.pods[0], h.pods[len(h.pods)-1]
		if grace := *first.DeletionGracePeriodSeconds; grace != gracePeriod {
			w.Errorf("Pod %s is terminating with a grace period of %d s, its own is %d s", first.Name, grace, gracePeriod)
		}
		for _, p := range h.pods { // the kubelet sets it to 0 at the end
			if *p.DeletionGracePeriodSeconds != gracePeriod && ended(p) == nil {
				w.Errorf("Pod %s has a grace period of %d s while its container runs", p.Name, *p.DeletionGracePeriodSeconds)
			}
		}
		container := ended(last)
		if container == nil {
			w.Errorf("Pod %s is gone before its container has ended: %v", last.Name, last.Status.ContainerStatuses)
			continue
		}
		if container.ExitCode != 0 {
			w.Errorf("the container of Pod %s was killed: %v", last.Name, container)
		}
		asked := first.DeletionTimestamp.Add(-gracePeriod * time.Second)
		if took := container.FinishedAt.Sub(asked); took < lingers-time.Second { // both are whole seconds
			w.Errorf("the container of Pod %s ended after %s, it takes %s", last.Name, took, lingers)
		}
	}
}

func ended(pod *corev1.Pod) *corev1.ContainerStateTerminated {
	if len(pod.Status.ContainerStatuses) != 1 {
		return nil
	}
	return pod.Status.ContainerStatuses[0].State.Terminated
}

// askedByAlone checks that Pods were deleted by the collector, each with the grace period
// that is its own, and by their kubelet after that, and by nobody else.
func (w *world) askedByAlone(collector string) {
	w.Helper()
	by := map[string]int{}
	for _, d := range w.deletions() {
		by[d.User.Username]++
		if seconds := d.RequestObject.GracePeriodSeconds; seconds != nil && !byNode(d) {
			w.Errorf("%s deletes Pod %s with a grace period of %d s", d.User.Username, d.ObjectRef.Name, *seconds)
		}
	}
	node := "system:node:" + shared.node.Name()
	if by[collector] < replicas || by[node] < replicas || len(by) != 2 {
		w.Errorf("Pods are deleted by %v, want %s and %s", by, collector, node)
	}
}
