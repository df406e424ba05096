package run

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gleaner-dev/gleaner/operator/recordlog"
)

var (
	recordsStoredDesc = prometheus.NewDesc("gleaner_records_stored_total",
		"Decision records that were stored durably, in the archive.", nil, nil)
	recordsLostDesc = prometheus.NewDesc("gleaner_records_lost_total",
		"Decision records that were not stored durably, because the archive was too slow or failed.", nil, nil)
	recordsWaitingDesc = prometheus.NewDesc("gleaner_records_waiting",
		"Decision records that wait to be stored durably.", nil, nil)
)

// collectRecordLog collects what has become of records.
func collectRecordLog(s recordlog.Stats, out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(recordsStoredDesc, prometheus.CounterValue, float64(s.Stored))
	out <- prometheus.MustNewConstMetric(recordsLostDesc, prometheus.CounterValue, float64(s.Lost))
	out <- prometheus.MustNewConstMetric(recordsWaitingDesc, prometheus.GaugeValue, float64(s.Waiting))
}
