package run

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gleaner-dev/gleaner/policies/worker"
)

var (
	workersDesc = prometheus.NewDesc("gleaner_sandbox_workers",
		"Worker processes that run, by the scope of the policies that they evaluate modules for.", []string{"scope"}, nil)
	workersEndedDesc = prometheus.NewDesc("gleaner_sandbox_workers_ended_total",
		"Worker processes that have ended, by scope and cause. Time, Memory and Crash are the fault of a module.", []string{"scope", "cause"}, nil)
	quarantinedDesc = prometheus.NewDesc("gleaner_modules_quarantined",
		"Modules that are not run for now, since their worker process had to be killed, by policy and namespace of the objects.", nil, nil)
)

// collectSandbox collects the metrics of the workers, if there are any.
func collectSandbox(pool *worker.Pool, out chan<- prometheus.Metric) {
	if pool == nil {
		return
	}
	stats := pool.Stats()
	for scope, n := range stats.Running {
		out <- prometheus.MustNewConstMetric(workersDesc, prometheus.GaugeValue, float64(n), string(scope))
	}
	for scope, ended := range stats.Ended {
		for cause, n := range ended {
			out <- prometheus.MustNewConstMetric(workersEndedDesc, prometheus.CounterValue, float64(n), string(scope), string(cause))
		}
	}
	out <- prometheus.MustNewConstMetric(quarantinedDesc, prometheus.GaugeValue, float64(len(pool.Quarantined())))
}
