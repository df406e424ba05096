package run

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/operator/canary"
	"github.com/gleaner-dev/gleaner/operator/cascadelog"
	"github.com/gleaner-dev/gleaner/operator/completion"
	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

var (
	cascadesDesc  = prometheus.NewDesc("gleaner_cascades_in_progress", "Cascades in progress.", nil, nil)
	untrackedDesc = prometheus.NewDesc("gleaner_cascades_untracked_total",
		"Cascades that are not reported, since there were too many, or they were too large.", nil, nil)
)

// cascadeEventsPerSecond limits the events about cascades, which do not delay others.
const cascadeEventsPerSecond = 20

// cascading follows cascades.
type cascading struct {
	log              *cascadelog.Log
	seconds, objects prometheus.Histogram
}

// connectCascades makes what follows cascades. It sends no requests yet.
func (op *Operator) connectCascades() error {
	events, err := kubernetes.NewForConfig(op.limited(cascadeEventsPerSecond))
	if err != nil {
		return fmt.Errorf("create client for events of cascades: %w", err)
	}
	c := &op.cascading
	c.seconds = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "gleaner_cascade_seconds", Help: "Time from the deletion of an object until nothing of its cascade is left.",
		Buckets: prometheus.ExponentialBuckets(0.01, 4, 12),
	})
	c.objects = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "gleaner_cascade_objects", Help: "Objects that were deleted in a cascade, without its root.",
		Buckets: prometheus.ExponentialBuckets(1, 4, 11),
	})
	c.log = cascadelog.New(cascadelog.Options{
		Ignore: func(o graph.Object) bool {
			return o.Namespace == op.options.Namespace && strings.HasPrefix(o.Name, canary.NamePrefix)
		},
		Graph: op.store, Client: op.policyClient, Namespace: op.options.Namespace, Leading: op.reportsCascades, Left: op.leftOf,
		Event: func(ctx context.Context, e *corev1.Event) error {
			_, err := events.CoreV1().Events(e.Namespace).Create(ctx, e, metav1.CreateOptions{})
			return err
		},
		Observe: func(done completion.Cascade, took time.Duration) {
			c.seconds.Observe(took.Seconds())
			c.objects.Observe(float64(done.Deleted))
		},
		Record: op.recorder.RecordCascade,
		DryRun: op.options.DryRun, Now: op.now, Log: op.log.WithName("cascades"),
	})
	return nil
}

// reportsCascades reports whether this replica reports cascades. In companion mode, nothing is written without a policy.
func (op *Operator) reportsCascades() bool {
	return op.gate.IsLeading() && (!op.options.Companion || len(op.snapshots.Policies().All()) != 0)
}

// leftOf describes what is left of a cascade: objects that are being deleted, or else dependents of absent owners.
func (op *Operator) leftOf(c completion.Cascade) string {
	var first string
	others := 0
	add := func(id graph.ID) {
		view, ok := op.store.Lookup(id)
		if !ok {
			return
		}
		if first != "" {
			others++
			return
		}
		o := view.Object
		if first = o.Kind.Kind + " " + o.Name; o.Namespace != "" {
			first = o.Kind.Kind + " " + o.Namespace + "/" + o.Name
		}
		switch {
		case o.Terminating && o.OtherFinalizers:
			first += ", which is being deleted and has finalizers"
		case o.Terminating:
			first += ", which is being deleted"
		}
	}
	for _, uid := range c.Owners {
		if id := graph.IDOf(uid); op.store.IsSeen(id) {
			add(id)
			continue
		}
		for _, id := range op.store.Dependents(graph.IDOf(uid)) {
			add(id)
		}
	}
	switch {
	case first == "":
		return "unknown"
	case others == 0:
		return first
	default:
		return fmt.Sprintf("%s, and at least %d more", first, others)
	}
}

// collect passes the metrics of cascades on.
func (c *cascading) collect(out chan<- prometheus.Metric) {
	inProgress, unreported := c.log.Counts()
	out <- prometheus.MustNewConstMetric(cascadesDesc, prometheus.GaugeValue, float64(inProgress))
	out <- prometheus.MustNewConstMetric(untrackedDesc, prometheus.CounterValue, float64(unreported))
	c.seconds.Collect(out)
	c.objects.Collect(out)
}

// cascades returns the cascades that the debug endpoint shows.
func (v view) cascades() debug.Cascades {
	inProgress, completed := v.cascading.log.Cascades()
	return debug.Cascades{InProgress: inProgress, Completed: completed}
}
