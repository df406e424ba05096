package main

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// attaching measures how long it takes until existing objects have the
// finalizer: from the creation of the ClusterFinalizer and its module, and from the start of an
// equivalent handwritten controller.
func (f finalizerBench) attaching(ctx context.Context, c client.Client, r *report, b budget, module serving) error {
	byHand := func(namespace string) serving {
		return serving{by: &handwritten{cluster: f.cluster, attach: namespace}}
	}
	attach := func(namespace string) serving {
		v := module
		v.finalizer = v.finalizer.DeepCopy()
		v.finalizer.Spec.Attach = true
		v.finalizer.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: namespace}}
		return v
	}
	var theirs, own []float64
	for range f.rounds {
		seconds, err := f.attached(ctx, c, b, byHand)
		if err != nil {
			return fmt.Errorf("attach, %s: %w", handwrittenName, err)
		}
		theirs = append(theirs, seconds)
		if seconds, err = f.attached(ctx, c, b, attach); err != nil {
			return fmt.Errorf("attach, %s: %w", gleanerName, err)
		}
		own = append(own, seconds)
	}
	r.note("seconds until %d objects that are there have the finalizer: %.2f with attach: true, from the creation of the ClusterFinalizer and its module; "+
		"%.2f by hand, from the start of the controller (ratio %.2f)", f.finalized, median(own), median(theirs), median(own)/median(theirs))
	return nil
}

func isAttached(e watch.Event) bool {
	o, ok := e.Object.(*corev1.ConfigMap)
	return ok && slices.Contains(o.Finalizers, benchFinalizer)
}

// attached measures one round. Want creates whatever attaches the finalizer to the objects of a
// namespace.
func (f finalizerBench) attached(ctx context.Context, c client.Client, b budget, want func(namespace string) serving) (seconds float64, err error) {
	namespace, err := f.withFinalizers(ctx, f.finalized)
	if err != nil {
		return 0, err
	}
	err = f.serve(ctx, c, want(namespace), b, func(begin func() error) (err error) {
		if _, seconds, err = f.follow(ctx, namespace, f.finalized, isAttached, begin); err != nil {
			return err
		}
		_, _, err = f.deleteAll(ctx, namespace, f.finalized)
		return err
	})
	return seconds, err
}
