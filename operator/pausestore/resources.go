package pausestore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/livelist"
	"github.com/gleaner-dev/gleaner/operator/pause"
)

// maxStatusWrites bounds how many statuses are written after one read.
const maxStatusWrites = 100

// Resource is a Pause or ClusterPause.
type Resource struct {
	client.Object
	Spec   *v1alpha1.PauseSpec
	Status *v1alpha1.PauseStatus
}

// Read lists all pauses. One that is being deleted has ended, whatever finalizers it has. It reports whether one of their types is served.
func Read(ctx context.Context, from client.Reader, absent livelist.Absent) (all []Resource, served bool, err error) {
	var (
		cluster    v1alpha1.ClusterPauseList
		namespaced v1alpha1.PauseList
	)
	for _, each := range []struct {
		kind string
		into client.ObjectList
	}{{v1alpha1.KindClusterPause, &cluster}, {v1alpha1.KindPause, &namespaced}} {
		is, err := livelist.List(ctx, from, absent, each.kind, each.into)
		if err != nil {
			return nil, false, err
		}
		served = served || is
	}
	for i := range cluster.Items {
		p := &cluster.Items[i]
		all = append(all, Resource{p, &p.Spec, &p.Status})
	}
	for i := range namespaced.Items {
		p := &namespaced.Items[i]
		all = append(all, Resource{p, &p.Spec, &p.Status})
	}
	return slices.DeleteFunc(all, func(r Resource) bool { return r.GetDeletionTimestamp() != nil }), served, nil
}

// Pause returns what the resource stops.
func (r Resource) Pause() pause.Pause {
	p := pause.Pause{UID: r.GetUID(), Namespace: r.GetNamespace(), Name: r.GetName(), Reason: r.Spec.Reason}
	if r.Spec.Until != nil {
		p.Until = r.Spec.Until.Time
	}
	if by := r.Spec.Policy; by != nil {
		p.Policy = PolicyName(*by, r.GetNamespace())
	}
	return p
}

// PolicyName returns the name of a paused policy as its decisions have it. The namespace is that of a
// Pause.
func PolicyName(p v1alpha1.PausedPolicy, namespace string) string {
	switch {
	case strings.HasPrefix(p.Kind, "Cluster"):
		return p.Kind + " " + p.Name
	case namespace == "":
		namespace = p.Namespace
	}
	return p.Kind + " " + namespace + "/" + p.Name
}

// condition returns the condition InForce.
func (r Resource) condition(now time.Time) metav1.Condition {
	c := condition(v1alpha1.ConditionInForce, metav1.ConditionTrue, v1alpha1.ReasonPaused, "Gleaner deletes nothing in its scope")
	if r.Pause().Ended(now) {
		c = condition(v1alpha1.ConditionInForce, metav1.ConditionFalse, v1alpha1.ReasonExpired, "spec.until has passed: delete it, or set a later time")
	}
	c.ObservedGeneration, c.LastTransitionTime = r.GetGeneration(), metav1.NewTime(now).Rfc3339Copy()
	return c
}

func condition(kind string, status metav1.ConditionStatus, reason, message string) metav1.Condition {
	return metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message}
}

// writeStatus writes the statuses that differ.
func writeStatus(ctx context.Context, to client.Client, all []Resource, now time.Time) (errs error) {
	written := 0
	for _, r := range all {
		if written == maxStatusWrites {
			break
		}
		before, _ := r.DeepCopyObject().(client.Object)
		if changed := apimeta.SetStatusCondition(&r.Status.Conditions, r.condition(now)); !changed && r.Status.ObservedGeneration == r.GetGeneration() {
			continue
		}
		r.Status.ObservedGeneration = r.GetGeneration()
		written++
		err := to.Status().Patch(ctx, r.Object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			errs = errors.Join(errs, fmt.Errorf("write status of %s: %w", r.Pause(), err))
		}
	}
	return errs
}
