package run

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gleaner-dev/gleaner/operator/archivestore"
	"github.com/gleaner-dev/gleaner/operator/recordlog"
)

var (
	archiveReadyDesc = prometheus.NewDesc("gleaner_archive_ready",
		"Whether the archive accepted what was written to it last. Absent without an archive, and until something was written.", nil, nil)
	archivedDesc = prometheus.NewDesc("gleaner_archive_objects_total",
		"Objects that were archived, for each archive policy that selects them.", nil, nil)
	archivedBytesDesc = prometheus.NewDesc("gleaner_archive_bytes_total",
		"Size of archived objects as stored, for each archive policy that selects them.", nil, nil)
	unarchivedDesc = prometheus.NewDesc("gleaner_archive_missed_total",
		"Objects that were deleted without being archived, since that failed and all policies say onFailure: Continue.", nil, nil)

	recordsStoredDesc = prometheus.NewDesc("gleaner_records_stored_total",
		"Decision records that were stored durably, in the archive.", nil, nil)
	recordsLostDesc = prometheus.NewDesc("gleaner_records_lost_total",
		"Decision records that were not stored durably, because the archive was too slow or failed.", nil, nil)
	recordsWaitingDesc = prometheus.NewDesc("gleaner_records_waiting",
		"Decision records that wait to be stored durably.", nil, nil)
)

// collect passes the metrics of the archive on; none without one.
func (a archiving) collect(out chan<- prometheus.Metric) {
	if a.source == nil {
		return
	}
	if health, _ := a.source.Health().Load(); health.State != archivestore.Starting {
		out <- prometheus.MustNewConstMetric(archiveReadyDesc, prometheus.GaugeValue, number(health.State == archivestore.Ready))
	}
	collectRecordLog(a.log.Stats(), out)
	totals := a.archiver.Totals()
	for desc, n := range map[*prometheus.Desc]int64{archivedDesc: totals.Archived, archivedBytesDesc: totals.Bytes, unarchivedDesc: totals.Missed} {
		out <- prometheus.MustNewConstMetric(desc, prometheus.CounterValue, float64(n))
	}
}

// collectRecordLog collects what has become of records.
func collectRecordLog(s recordlog.Stats, out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(recordsStoredDesc, prometheus.CounterValue, float64(s.Stored))
	out <- prometheus.MustNewConstMetric(recordsLostDesc, prometheus.CounterValue, float64(s.Lost))
	out <- prometheus.MustNewConstMetric(recordsWaitingDesc, prometheus.GaugeValue, float64(s.Waiting))
}
