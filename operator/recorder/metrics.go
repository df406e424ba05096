package recorder

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/finalizers"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// metrics count decisions.
type metrics struct {
	decisions *prometheus.CounterVec
	policies  *prometheus.CounterVec
	delay     prometheus.Histogram
	vetoes    *prometheus.CounterVec
	intents   *prometheus.CounterVec
	released  *prometheus.HistogramVec
	limited   *prometheus.CounterVec

	// Values of labels that come and go: types, policies and finalizers. Their series are
	// deleted with them, or a cluster that creates many would have ever more.
	kinds, policyNames, finalizerNames, limitedNames sync.Map
}

func newMetrics() *metrics {
	return &metrics{
		decisions: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gleaner_decisions_total", Help: "Decisions, also on finalizers, by action, reason, result, and the object's group and kind.",
		}, []string{"action", "reason", "result", "group", "kind"}),
		policies: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gleaner_policy_answers_total", Help: "Verdicts of policies and finalizers, by policy, mode and decision; Fault if there was none.",
		}, []string{"policy", "mode", "decision"}),
		vetoes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gleaner_vetoes_total", Help: "Deletes by the built-in garbage collector, by response (passed or refused) and the object's group and kind.",
		}, []string{"answer", "group", "kind"}),
		delay: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "gleaner_collection_delay_seconds",
			Help:    "Time from the observation that an object's last owner is gone to the object's deletion.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 18),
		}),
		intents: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gleaner_finalizer_intents_total",
			Help: "Intents of finalizers that were carried out, by finalizer, type, and result: Done, an HTTP status, or the reason of an error.",
		}, []string{"finalizer", "type", "result"}),
		limited: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gleaner_rate_limited_total",
			Help: "Times that a policy or finalizer exceeded a rate limit, by limit: states, writes, events or log.",
		}, []string{"policy", "limit"}),
		released: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "gleaner_finalizer_seconds",
			Help:    "Time from an object's deletion to the removal of a finalizer, by finalizer and reason.",
			Buckets: prometheus.ExponentialBuckets(0.01, 4, 12),
		}, []string{"finalizer", "reason"}),
	}
}

// Describe implements prometheus.Collector.
func (r *Recorder) Describe(descs chan<- *prometheus.Desc) { prometheus.DescribeByCollect(r, descs) }

// Collect implements prometheus.Collector.
func (r *Recorder) Collect(out chan<- prometheus.Metric) {
	m := r.metrics
	for _, c := range []prometheus.Collector{m.decisions, m.policies, m.delay, m.vetoes, m.intents, m.released, m.limited} {
		c.Collect(out)
	}
}

func (m *metrics) countDecision(e record.Entry, o graph.Object) {
	remember(&m.kinds, o.Kind.GroupKind())
	m.decisions.WithLabelValues(string(e.Action), string(e.Reason), e.Result, o.Kind.Group, o.Kind.Kind).Inc()
}

func (m *metrics) countFinalizer(o finalizers.Outcome, e record.Entry) {
	name := o.Finalizer.String()
	remember(&m.finalizerNames, name)
	for _, intent := range e.Intents {
		m.intents.WithLabelValues(name, string(intent.Type), intent.Result).Inc()
	}
	if o.Removed {
		m.released.WithLabelValues(name, string(o.Reason)).Observe(o.HeldFor.Seconds())
	}
}

// observeDelay observes how long after the last owner's absence was found an object is
// deleted.
func (m *metrics) observeDelay(facts decide.Facts, at time.Time) {
	var last time.Time
	for _, o := range facts.Owners {
		if o.FoundAbsentAt.After(last) {
			last = o.FoundAbsentAt
		}
	}
	if !last.IsZero() {
		m.delay.Observe(at.Sub(last).Seconds())
	}
}

// countEvaluations counts verdicts, here and for the status of policies.
func (r *Recorder) countEvaluations(e record.Entry) {
	for _, evaluation := range e.Evaluations {
		decision := evaluation.Decision
		if evaluation.Fault != "" {
			decision = "Fault"
		}
		remember(&r.metrics.policyNames, evaluation.Policy)
		r.metrics.policies.WithLabelValues(evaluation.Policy, evaluation.Mode, decision).Inc()
		r.options.Observations.Decided(evaluation.Policy, decision)
	}
}

// CountVeto counts a delete by the built-in collector, which was passed or refused.
func (r *Recorder) CountVeto(kind schema.GroupKind, passed bool) {
	response := "refused"
	if passed {
		response = "passed"
	}
	remember(&r.metrics.kinds, kind)
	r.metrics.vetoes.WithLabelValues(response, kind.Group, kind.Kind).Inc()
}

// CountLimited counts that a policy or finalizer exceeded a rate limit.
func (r *Recorder) CountLimited(policy, limit string) {
	remember(&r.metrics.limitedNames, policy)
	r.metrics.limited.WithLabelValues(policy, limit).Inc()
}

// Existing tells apart what still exists.
type Existing struct {
	Kind func(schema.GroupKind) bool

	// Policies and Finalizers are named as policies.Policy.String does; nil: they are not
	// known, and their series stay.
	Policies, Finalizers map[string]bool
}

// Forget deletes the series of what does not exist any more.
func (r *Recorder) Forget(e Existing) {
	m := r.metrics
	forget(&m.kinds, e.Kind, func(gk schema.GroupKind) {
		labels := prometheus.Labels{"group": gk.Group, "kind": gk.Kind}
		m.decisions.DeletePartialMatch(labels)
		m.vetoes.DeletePartialMatch(labels)
	})
	if e.Policies != nil {
		forget(&m.policyNames, func(name string) bool { return e.Policies[name] }, func(name string) {
			m.policies.DeletePartialMatch(prometheus.Labels{"policy": name})
		})
	}
	if e.Finalizers == nil {
		return
	}
	forget(&m.finalizerNames, func(name string) bool { return e.Finalizers[name] }, func(name string) {
		labels := prometheus.Labels{"finalizer": name}
		m.intents.DeletePartialMatch(labels)
		m.released.DeletePartialMatch(labels)
	})
	if e.Policies != nil {
		forget(&m.limitedNames, func(name string) bool { return e.Policies[name] || e.Finalizers[name] }, func(name string) {
			m.limited.DeletePartialMatch(prometheus.Labels{"policy": name})
		})
	}
}

func remember(in *sync.Map, label any) {
	if _, ok := in.Load(label); !ok {
		in.Store(label, nil)
	}
}

func forget[T any](in *sync.Map, exists func(T) bool, drop func(T)) {
	in.Range(func(key, _ any) bool {
		if label := key.(T); !exists(label) {
			in.Delete(key)
			drop(label)
		}
		return true
	})
}
