package main

import (
	"context"
	"errors"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// budgets measures the cost of a deletion budget for all objects that is not exhausted, relative to none.
func (f policyBench) budgets(ctx context.Context, r *report, b budget) error {
	c, err := f.define(ctx)
	if err != nil {
		return err
	}
	large := &v1alpha1.ClusterDeletionBudget{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Spec: v1alpha1.DeletionBudgetSpec{
		Resources:    []v1alpha1.ResourceRule{{APIGroups: []string{"*"}, Resources: []string{"*"}}},
		MaxDeletions: intstr.FromInt32(1_000_000), Window: metav1.Duration{Duration: time.Hour},
	}}
	var without, with []float64
	for range f.rounds {
		rate, err := f.measureUnder(ctx, c, variant{}, b)
		if err != nil {
			return err
		}
		without = append(without, rate)
		if err := c.Create(ctx, large.DeepCopy()); err != nil {
			return err
		}
		rate, err = f.measureUnder(ctx, c, variant{}, b)
		if err := errors.Join(err, c.Delete(ctx, large)); err != nil {
			return err
		}
		with = append(with, rate)
		progress("background, objects/s: %.0f without a budget, %.0f with one", without[len(without)-1], rate)
	}
	r.note("background, objects/s, a deletion budget for all objects: %.0f (%.0f %% of none)", median(with), 100*median(with)/median(without))
	return nil
}
