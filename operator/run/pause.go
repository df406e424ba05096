package run

import (
	"context"
	"slices"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/pause"
	"github.com/gleaner-dev/gleaner/operator/pausestore"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

var (
	pausesDesc = prometheus.NewDesc("gleaner_pauses",
		"Pauses in force, by kind. Absent while they are not known, when nothing is deleted either.", []string{"kind"}, nil)
	pausedWritesDesc = prometheus.NewDesc("gleaner_paused_writes_total",
		"Writes that were stopped by a pause. A write that is tried again counts again.", nil, nil)
)

// pausing has the pauses in force.
type pausing struct {
	source  *pausestore.Source
	stopped atomic.Uint64 // writes
}

// connectPauses makes what reads pauses. It sends no requests yet.
func (op *Operator) connectPauses() {
	op.pausing.source = pausestore.New(pausestore.Options{
		Client: op.policyClient, Absent: func(ctx context.Context, gk schema.GroupKind) (bool, error) { return op.watcher.Absent(ctx, gk) },
		Leading: op.gate.IsLeading, Now: op.now, Log: op.log.WithName("pauses"),
	})
}

// steps returns the steps that writes pass before the gate. Storing an object takes time, in which a
// pause may come into force.
func (op *Operator) steps() []writer.Step {
	paused := pause.Step{Current: op.pausing.source.Current, Now: op.now, Stopped: func(writer.Write, pause.Pause) { op.pausing.stopped.Add(1) }}
	return slices.Concat([]writer.Step{paused}, op.budgeting.around(slices.Concat(op.archiving.steps(), []writer.Step{paused})))
}

// pauseChanges queues everything when less is paused than before.
func (f follower) pauseChanges(ctx context.Context) error {
	before, then := &pause.Set{}, f.now()
	for {
		changed := f.pausing.source.Changed()
		if s, err := f.pausing.source.Current(); err == nil {
			now := f.now()
			if pause.IsNarrower(before, then, s, now) {
				f.store.Sweep()
				f.finalizers.Retry()
				f.retention.Retry()
			}
			before, then = s, now
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
	}
}

// collect passes the metrics of pauses on.
func (op *Operator) collectPauses(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(pausedWritesDesc, prometheus.CounterValue, float64(op.pausing.stopped.Load()))
	set, err := op.pausing.source.Current()
	if err != nil {
		return
	}
	cluster, namespaced := 0, 0
	for _, p := range set.InForce(op.now()) {
		if p.Namespace == "" {
			cluster++
		} else {
			namespaced++
		}
	}
	out <- prometheus.MustNewConstMetric(pausesDesc, prometheus.GaugeValue, float64(cluster), "ClusterPause")
	out <- prometheus.MustNewConstMetric(pausesDesc, prometheus.GaugeValue, float64(namespaced), "Pause")
}

// pauses describes what is paused in the whole cluster, for people. What is paused in namespaces is
// for those who may read it there.
func (v view) pauses() []string {
	set, err := v.pausing.source.Current()
	if err != nil {
		return []string{err.Error()}
	}
	var lines []string
	for _, p := range set.InForce(v.now()) {
		if p.Namespace != "" {
			continue
		}
		line := pause.Message(p)
		if p.Policy != "" {
			line = p.Policy + " is " + line
		}
		lines = append(lines, line)
	}
	return lines
}
