package run

import (
	"context"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/operator/act"
	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/evaluate"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/retainer"
)

var (
	retentionSelectedDesc = prometheus.NewDesc("gleaner_retention_selected_objects", "Objects that a retention policy selects.", []string{"policy"}, nil)
	retentionDueDesc      = prometheus.NewDesc("gleaner_retention_due_objects",
		"Objects that the limits of a retention policy remove now; in mode Monitor, they stay.", []string{"policy"}, nil)
	retentionRemovedDesc = prometheus.NewDesc("gleaner_retention_removed_total", "Objects removed for a retention policy, by the limit that removed them.", []string{"policy", "reason"}, nil)
	retentionDelayDesc   = prometheus.NewDesc("gleaner_retention_removal_delay_seconds",
		"Time from when an object was found due until it was removed for a retention policy, with waits for pauses, budgets and other policies.", []string{"policy"}, nil)
	retentionFailuresDesc = prometheus.NewDesc("gleaner_retention_failures_total", "Failed attempts to remove an object for a retention policy.", []string{"policy"}, nil)
)

// maxRetentionSeries is the number of retention policies with metrics.
const maxRetentionSeries = 1000

// connectRetention makes what carries out retention policies. Lists and watches use the client of all watches, and removals that of all
// writes. It sends no requests yet.
func (op *Operator) connectRetention(watching *rest.Config, objects metadata.Interface, from reads) error {
	client, err := dynamic.NewForConfig(watching)
	if err != nil {
		return fmt.Errorf("create client for retention: %w", err)
	}
	lister, err := bulkread.NewLiveLister(watching)
	if err != nil {
		return err
	}
	op.retention = retainer.New(retainer.Options{
		Policies: op.retentions, Changed: op.snapshots.Changed, Catalog: op.types, Absent: op.watcher.Absent, Lister: lister, Client: client, Reader: from.reader,
		Evaluator: view{op}, Graph: op.store,
		Actor: act.New(objects, op.types, op.keys.Keys), Steps: op.steps(), Gate: &op.gate, DryRun: op.options.DryRun,
		Record: op.recorder.RecordRetention, Now: op.now, Log: op.log.WithName("retention"), Ignored: op.options.Namespace,
	})
	return nil
}

// Evaluate implements retainer.Evaluator.
func (v view) Evaluate(ctx context.Context, q evaluate.Input) (evaluate.Result, error) {
	return v.collector.Decider.Evaluator.Evaluate(ctx, q)
}

// retentions returns the retention policies in force; false if they are not known.
func (op *Operator) retentions() ([]*policyset.Retention, bool) {
	if s := op.snapshots.Current(); s != nil {
		return s.Retentions, true
	}
	return nil, false
}

// collectRetention passes the metrics of retention policies on.
func (op *Operator) collectRetention(out chan<- prometheus.Metric) {
	all, _ := op.retention.Status().Load()
	left := maxRetentionSeries
	for _, p := range all {
		if left--; left < 0 {
			return
		}
		out <- prometheus.MustNewConstMetric(retentionSelectedDesc, prometheus.GaugeValue, float64(p.Selected), p.Name)
		out <- prometheus.MustNewConstMetric(retentionDueDesc, prometheus.GaugeValue, float64(p.Due), p.Name)
		out <- prometheus.MustNewConstMetric(retentionFailuresDesc, prometheus.CounterValue, float64(p.Failures), p.Name)
		out <- prometheus.MustNewConstHistogram(retentionDelayDesc, p.Delays.Count, p.Delays.Sum.Seconds(), p.Delays.Buckets(), p.Name)
		for reason, n := range p.Removed {
			out <- prometheus.MustNewConstMetric(retentionRemovedDesc, prometheus.CounterValue, float64(n), p.Name, string(reason))
		}
	}
}
