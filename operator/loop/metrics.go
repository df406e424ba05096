package loop

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/finalize"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/watch"
)

// metrics are those of one Loop. What can be read off is collected when asked
// for, so that nothing has to be kept up to date.
type metrics struct {
	loop      *Loop
	decisions *prometheus.CounterVec
	policies  *prometheus.CounterVec
	delay     prometheus.Histogram
	vetoes    *prometheus.CounterVec

	intents  *prometheus.CounterVec
	released *prometheus.HistogramVec
	limited  *prometheus.CounterVec

	series series
}

var (
	objectsDesc = prometheus.NewDesc("gleaner_graph_objects",
		"Objects in the owner graph: seen, named by a reference only, or gone with dependents left.", []string{"state"}, nil)
	edgesDesc = prometheus.NewDesc("gleaner_graph_edges", "Owner references in the graph.", nil, nil)
	twinsDesc = prometheus.NewDesc("gleaner_graph_twin_events_total",
		"Events on an object that is seen under another kind already.", nil, nil)
	pendingDesc = prometheus.NewDesc("gleaner_queue_oldest_seconds",
		"For how long the object that has waited longest has waited to be looked at.", nil, nil)
	parkedDesc = prometheus.NewDesc("gleaner_parked_objects",
		"Objects with too many owner references, of which not all owners have been read.", nil, nil)
	syncedDesc = prometheus.NewDesc("gleaner_resource_synced",
		"Whether a watched resource has been listed completely.", []string{"group", "version", "resource"}, nil)
	gateDesc = prometheus.NewDesc("gleaner_writes_enabled",
		"Whether Gleaner writes; not while another collector is alive, or might be.", nil, nil)
	companyDesc = prometheus.NewDesc("gleaner_collector_missing",
		"Whether Gleaner runs as a companion, and there is no other collector.", nil, nil)
	rivalDesc = prometheus.NewDesc("gleaner_collector_unexpected",
		"Whether Gleaner runs as the only collector, and another one is alive; it does not write then.", nil, nil)
	finalizingDesc = prometheus.NewDesc("gleaner_finalizer_objects",
		"Objects that are being deleted and wait for a finalizer: pending, and those of them that are stuck.", []string{"finalizer", "state"}, nil)
	oldestDesc = prometheus.NewDesc("gleaner_finalizer_oldest_deletion_timestamp_seconds",
		"Deletion time of the object that has waited longest for a finalizer.", []string{"finalizer"}, nil)
	recordsDesc = prometheus.NewDesc("gleaner_records",
		"Decisions that are kept, of as many as --records.", nil, nil)
	transcriptsDesc = prometheus.NewDesc("gleaner_record_transcript_bytes",
		"About how much memory is taken by what modules were asked and answered, of as much as --transcripts.", nil, nil)
	keysDesc = prometheus.NewDesc("gleaner_state_keys_available",
		"Whether the keys that sign state annotations could be read; if not, objects with state are kept.", nil, nil)
	discoveryDesc = prometheus.NewDesc("gleaner_discovery_errors_total", "Failed or partly failed discovery passes.", nil, nil)
)

func newMetrics(l *Loop) *metrics {
	return &metrics{
		loop: l,
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gleaner_decisions_total", Help: "Decisions, also on finalizers, by action, reason, result, and the object's group and kind.",
		}, []string{"action", "reason", "result", "group", "kind"}),
		policies: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gleaner_policy_answers_total", Help: "What policies answered, by policy, mode and decision; Fault for no answer.",
		}, []string{"policy", "mode", "decision"}),
		vetoes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gleaner_vetoes_total", Help: "Deletes of the other collector, by answer (passed or refused) and the object's group and kind.",
		}, []string{"answer", "group", "kind"}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "gleaner_collection_delay_seconds",
			Help:    "Time from learning that an object's last owner is gone to the object's deletion.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
		}),
		intents: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gleaner_finalizer_intents_total",
			Help: "What modules of finalizers had done, by finalizer, type, and result: Done, an HTTP status, or the reason of an error.",
		}, []string{"finalizer", "type", "result"}),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gleaner_rate_limited_total",
			Help: "How often a policy or finalizer asked for more than it may in a time, by what: states, writes, events or log.",
		}, []string{"policy", "limit"}),
		released: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "gleaner_finalizer_seconds",
			Help:    "Time from an object's deletion to the removal of a finalizer, by finalizer and reason.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 12),
		}, []string{"finalizer", "reason"}),
	}
}

// tally counts a decision.
func (m *metrics) tally(e record.Entry, o graph.Object) {
	note(&m.series.kinds, o.Kind.GroupKind())
	m.decisions.WithLabelValues(string(e.Action), string(e.Reason), e.Result, o.Kind.Group, o.Kind.Kind).Inc()
}

// noteFinalizer counts what was decided about an object that has a finalizer.
func (m *metrics) noteFinalizer(n finalize.Note, e record.Entry) {
	name := n.Finalizer.String()
	note(&m.series.finalizers, name)
	for _, intent := range e.Intents {
		m.intents.WithLabelValues(name, string(intent.Type), intent.Result).Inc()
	}
	if n.Taken {
		m.released.WithLabelValues(name, string(n.Reason)).Observe(n.Lasted.Seconds())
	}
}

// limit counts what a policy or finalizer was not allowed yet.
func (m *metrics) limit(by, what string) {
	note(&m.series.limited, by)
	m.limited.WithLabelValues(by, what).Inc()
}

func (m *metrics) observeDelay(facts decide.Facts, at time.Time) {
	var last time.Time
	for _, o := range facts.Owners {
		if o.LearntAt.After(last) {
			last = o.LearntAt
		}
	}
	if !last.IsZero() {
		m.delay.Observe(at.Sub(last).Seconds())
	}
}

// count counts what policies answered, here and for their status.
func (l *Loop) count(e record.Entry) {
	for _, asked := range e.Asked {
		decision := asked.Decision
		if asked.Fault != "" {
			decision = "Fault"
		}
		note(&l.metrics.series.policies, asked.Policy)
		l.metrics.policies.WithLabelValues(asked.Policy, asked.Mode, decision).Inc()
		if l.keeper != nil {
			l.keeper.Decided(asked.Policy, decision)
		}
	}
}

// Describe implements prometheus.Collector.
func (m *metrics) Describe(descs chan<- *prometheus.Desc) {
	prometheus.DescribeByCollect(m, descs)
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	m.decisions.Collect(out)
	m.policies.Collect(out)
	m.delay.Collect(out)
	m.vetoes.Collect(out)
	m.intents.Collect(out)
	m.released.Collect(out)
	m.limited.Collect(out)
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...)
	}
	stats := m.loop.known.stats()
	gauge(objectsDesc, float64(stats.Seen), "seen")
	gauge(objectsDesc, float64(stats.Named), "named")
	gauge(objectsDesc, float64(stats.Gone), "gone")
	gauge(edgesDesc, float64(stats.Edges))
	gauge(pendingDesc, m.loop.known.oldest().Seconds())
	gauge(parkedDesc, float64(m.loop.parked.count()))
	records, transcripts := m.loop.records.Size()
	gauge(recordsDesc, float64(records))
	gauge(transcriptsDesc, float64(transcripts))
	gauge(gateDesc, number(m.loop.gate.get() == Open))
	gauge(companyDesc, number(m.loop.company.missing()))
	gauge(keysDesc, number(m.loop.hasKeys()))
	gauge(rivalDesc, number(m.loop.gate.get() == Shut))
	out <- prometheus.MustNewConstMetric(twinsDesc, prometheus.CounterValue, float64(stats.Twins))
	out <- prometheus.MustNewConstMetric(discoveryDesc, prometheus.CounterValue, float64(m.loop.watcher.Failures()))
	if m.loop.finalizers != nil {
		for name, p := range m.loop.finalizers.All() {
			gauge(finalizingDesc, float64(p.Pending), name, "pending")
			gauge(finalizingDesc, float64(len(p.Stuck)), name, "stuck")
			if !p.Oldest.IsZero() {
				gauge(oldestDesc, float64(p.Oldest.Unix()), name)
			}
		}
	}
	for _, s := range m.loop.watcher.States() {
		m.state(gauge, s)
	}
	if m.loop.keeper != nil {
		collectSandbox(m.loop.keeper.Sandbox(), out)
	}
}

func (m *metrics) state(gauge func(*prometheus.Desc, float64, ...string), s watch.State) {
	v := s.Resource.Version
	gauge(syncedDesc, number(s.Synced), v.Group, v.Version, v.Resource)
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
