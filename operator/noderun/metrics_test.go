package noderun

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/gleaner-dev/gleaner/operator/nodeagent"
	"github.com/gleaner-dev/gleaner/operator/noderetention"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

// The alerts of config/monitoring are checked with the series in this file.
const seriesFile = "../../test/prometheus/testdata/node-metrics"

func TestP22_Metrics_AreThoseThatAlertsUse(t *testing.T) {
	s, registry := newSeries(), prometheus.NewPedanticRegistry()
	registry.MustRegister(s)
	due := []noderetention.Result{{Removals: []noderetention.Item{{ID: "a"}, {ID: "b"}}}, {Removals: []noderetention.Item{{ID: "a"}}}}
	s.observe(nodeagent.Report{
		RuntimeAnswered: true, Usage: &retain.Usage{Capacity: 100, Available: 20}, Short: &nodeagent.Shortage{}, Freed: 7,
		Images: &nodeagent.Images{Total: 5, InUse: 2, Results: due}, Containers: &nodeagent.Containers{Exited: 3},
		Removals: []nodeagent.Removal{
			{Kind: nodeagent.Image, Item: noderetention.Item{Reason: retain.Pressure}}, {Kind: nodeagent.Container, Err: errors.New("no connection")},
		},
	})
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	values := map[string]float64{}
	for _, f := range families {
		line := f.GetName() + " " + strings.ToLower(f.GetType().String())
		for at, m := range f.GetMetric() {
			name := f.GetName()
			for _, label := range m.GetLabel() {
				name += " " + label.GetValue()
			}
			values[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			for _, label := range m.GetLabel() {
				if at == 0 {
					line += " " + label.GetName()
				}
			}
		}
		lines = append(lines, line)
	}
	file, err := os.ReadFile(seriesFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(sorted(strings.Split(strings.TrimSpace(string(file)), "\n")), sorted(lines)); diff != "" {
		t.Errorf("%s (-file +shown):\n%s", seriesFile, diff)
	}
	want := map[string]float64{
		"gleaner_node_exited_containers": 3, "gleaner_node_freed_bytes_total": 7, "gleaner_node_image_filesystem_avail_bytes": 20,
		"gleaner_node_image_filesystem_size_bytes": 100, "gleaner_node_images in_use": 2, "gleaner_node_images unused": 3, "gleaner_node_images due": 2,
		"gleaner_node_removal_failures_total Container": 1, "gleaner_node_removed_total Usage Image": 1, "gleaner_node_runtime_ready": 1, "gleaner_node_usage_above_threshold": 1,
	}
	if diff := cmp.Diff(want, values); diff != "" {
		t.Errorf("values (-want +got):\n%s", diff)
	}
}

// sorted sorts lines, and the labels in each.
func sorted(lines []string) []string {
	for at, line := range lines {
		fields := strings.Fields(line)
		slices.Sort(fields[2:])
		lines[at] = fmt.Sprint(fields)
	}
	slices.Sort(lines)
	return lines
}
