package noderun

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/gleaner-dev/gleaner/operator/nodeagent"
)

var (
	imagesDesc = prometheus.NewDesc("gleaner_node_images", "Images on the node, by state: in_use, unused, and due, which the limits of policies remove now; in mode Monitor, they stay.",
		[]string{"state"}, nil)
	exitedDesc    = prometheus.NewDesc("gleaner_node_exited_containers", "Exited containers on the node.", nil, nil)
	capacityDesc  = prometheus.NewDesc("gleaner_node_image_filesystem_size_bytes", "Size of the file system that has the images.", nil, nil)
	availableDesc = prometheus.NewDesc("gleaner_node_image_filesystem_avail_bytes", "Space available on the file system that has the images.", nil, nil)
	readyDesc     = prometheus.NewDesc("gleaner_node_runtime_ready", "Whether the container runtime answered in the last round: 1 if it did.", nil, nil)
	shortDesc     = prometheus.NewDesc("gleaner_node_usage_above_threshold", "Whether the usage of the file system that has the images stayed above the threshold of a policy after the last round: 1 if it did.", nil, nil)
)

// series counts what an agent does, and shows its last report.
type series struct {
	removed  *prometheus.CounterVec
	failures *prometheus.CounterVec
	freed    prometheus.Counter

	mu     sync.Mutex
	latest *nodeagent.Report
}

func newSeries() *series {
	return &series{
		removed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gleaner_node_removed_total", Help: "Images and containers removed from the node, by the limit that removed them.",
		}, []string{"type", "reason"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "gleaner_node_removal_failures_total", Help: "Failed attempts to remove an image or a container from the node.",
		}, []string{"type"}),
		freed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "gleaner_node_freed_bytes_total", Help: "Space that removals of images freed, as the file system reports it.",
		}),
	}
}

// observe takes a report.
func (s *series) observe(r nodeagent.Report) {
	for _, removal := range r.Removals {
		if removal.Err != nil {
			s.failures.WithLabelValues(string(removal.Kind)).Inc()
		} else {
			s.removed.WithLabelValues(string(removal.Kind), string(removal.Reason)).Inc()
		}
	}
	s.freed.Add(float64(r.Freed))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.latest = &r
}

// Describe implements prometheus.Collector.
func (s *series) Describe(out chan<- *prometheus.Desc) {
	s.removed.Describe(out)
	s.failures.Describe(out)
	s.freed.Describe(out)
	for _, d := range []*prometheus.Desc{imagesDesc, exitedDesc, capacityDesc, availableDesc, readyDesc, shortDesc} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (s *series) Collect(out chan<- prometheus.Metric) {
	s.removed.Collect(out)
	s.failures.Collect(out)
	s.freed.Collect(out)
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.latest
	if r == nil {
		return
	}
	gauge := func(d *prometheus.Desc, value float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, labels...)
	}
	gauge(readyDesc, is(r.RuntimeErr == nil))
	gauge(shortDesc, is(r.Short != nil))
	if i := r.Images; i != nil {
		due := map[string]bool{}
		for _, result := range i.Results {
			for _, removal := range result.Removals {
				due[removal.ID] = true
			}
		}
		gauge(imagesDesc, float64(i.InUse), "in_use")
		gauge(imagesDesc, float64(i.Total-i.InUse), "unused")
		gauge(imagesDesc, float64(len(due)), "due")
	}
	if c := r.Containers; c != nil {
		gauge(exitedDesc, float64(c.Exited))
	}
	if u := r.Usage; u != nil {
		gauge(capacityDesc, float64(u.Capacity))
		gauge(availableDesc, float64(u.Available))
	}
}

func is(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
