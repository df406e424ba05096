package run

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/watch"
)

// metrics are the metrics of an Operator that are computed when they are collected, and
// those of its Recorder.
type metrics struct{ operator *Operator }

var (
	objectsDesc = prometheus.NewDesc("gleaner_graph_objects",
		"Objects in the owner graph, by state: seen, named (only by an owner reference), or gone (with remaining dependents).", []string{"state"}, nil)
	edgesDesc       = prometheus.NewDesc("gleaner_graph_edges", "Owner references in the graph.", nil, nil)
	equivalentsDesc = prometheus.NewDesc("gleaner_graph_twin_events_total",
		"Events about objects that are already in the graph under another kind.", nil, nil)
	pendingDesc = prometheus.NewDesc("gleaner_queue_oldest_seconds",
		"How long the oldest object in the queue has waited to be reconciled, or is being reconciled.", nil, nil)
	parkedDesc = prometheus.NewDesc("gleaner_parked_objects",
		"Objects with many owner references, of which some owners have not been read yet.", nil, nil)
	syncedDesc = prometheus.NewDesc("gleaner_resource_synced",
		"Whether a watched resource has been listed completely.", []string{"group", "version", "resource"}, nil)
	gateDesc = prometheus.NewDesc("gleaner_writes_enabled",
		"Whether Gleaner may write: not while another collector runs, or may be running.", nil, nil)
	missingDesc = prometheus.NewDesc("gleaner_collector_missing",
		"Whether Gleaner runs in companion mode and no other collector runs.", nil, nil)
	unexpectedDesc = prometheus.NewDesc("gleaner_collector_unexpected",
		"Whether Gleaner runs in primary mode and another collector runs, so that Gleaner does not write.", nil, nil)
	finalizingDesc = prometheus.NewDesc("gleaner_finalizer_objects",
		"Objects that are being deleted and wait for a finalizer, by state: pending, and of these, stalled.", []string{"finalizer", "state"}, nil)
	oldestDesc = prometheus.NewDesc("gleaner_finalizer_oldest_deletion_timestamp_seconds",
		"Deletion timestamp of the object that has waited longest for a finalizer.", []string{"finalizer"}, nil)
	recordsDesc = prometheus.NewDesc("gleaner_records",
		"Decisions that are kept for debug endpoints; --records is the limit.", nil, nil)
	transcriptsDesc = prometheus.NewDesc("gleaner_record_transcript_bytes",
		"Approximate memory of the requests and responses of modules that are kept; --transcripts is the limit.", nil, nil)
	keysDesc = prometheus.NewDesc("gleaner_state_keys_available",
		"Whether the keys that sign state annotations are available; if not, objects with state are kept.", nil, nil)
	discoveryDesc = prometheus.NewDesc("gleaner_discovery_errors_total", "Failed or partly failed discovery passes.", nil, nil)
)

// Describe implements prometheus.Collector.
func (m metrics) Describe(descs chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(m, descs)
}

// Collect implements prometheus.Collector.
func (m metrics) Collect(out chan<- prometheus.Metric) {
	m.operator.recorder.Collect(out)
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	stats := m.operator.store.Stats()
	gauge(objectsDesc, float64(stats.Seen), "seen")
	gauge(objectsDesc, float64(stats.Named), "named")
	gauge(objectsDesc, float64(stats.Gone), "gone")
	gauge(edgesDesc, float64(stats.Edges))
	gauge(pendingDesc, m.operator.store.OldestPending().Seconds())
	gauge(parkedDesc, float64(m.operator.collector.ParkedCount()))
	records, transcripts := m.operator.records.Size()
	gauge(recordsDesc, float64(records))
	gauge(transcriptsDesc, float64(transcripts))
	gauge(gateDesc, number(m.operator.gate.IsOpen()))
	gauge(missingDesc, number(m.operator.companion != nil && m.operator.companion.Presence() == companion.Missing))
	_, keysErr := m.operator.keys.Keys()
	gauge(keysDesc, number(keysErr == nil))
	gauge(unexpectedDesc, number(m.operator.gate.State().Probe == gate.Shut))
	out <- prometheus.MustNewConstMetric(equivalentsDesc, prometheus.CounterValue, float64(stats.EquivalentEvents))
	out <- prometheus.MustNewConstMetric(discoveryDesc, prometheus.CounterValue, float64(m.operator.watcher.Failures()))
	if m.operator.finalizers != nil {
		for name, p := range m.operator.finalizers.AllProgress() {
			gauge(finalizingDesc, float64(p.Pending), name, "pending")
			gauge(finalizingDesc, float64(len(p.Stuck)), name, "stalled")
			if !p.Oldest.IsZero() {
				gauge(oldestDesc, float64(p.Oldest.Unix()), name)
			}
		}
	}
	for _, s := range m.operator.watcher.States() {
		m.state(gauge, s)
	}
	m.operator.archiving.collect(out)
	m.operator.collectPauses(out)
	m.operator.budgeting.collect(out)
	m.operator.cascading.collect(out)
	m.operator.collectRetention(out)
	if m.operator.modules != nil {
		collectSandbox(m.operator.modules.Sandbox, out)
	}
}

func (m metrics) state(gauge func(*prometheus.Desc, float64, ...string), s watch.State) {
	v := s.Resource.Version
	gauge(syncedDesc, number(s.Synced), v.Group, v.Version, v.Resource)
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
