package prometheus

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql/parser"
)

// shown lists the metrics of the operator: test/deploy compares it with a running
// one. Each line is a metric, its type, and its labels.
const shown = "testdata/metrics"

// onNodes lists those of gleaner node: operator/noderun compares it.
const onNodes = "testdata/node-metrics"

// added are the labels that Prometheus adds to scraped metrics; node by config/monitoring.
var added = []string{"instance", "job", "namespace", "node", "pod", "service"}

func read(t *testing.T, path string) []byte {
	t.Helper()
	content, err := os.ReadFile(filepath.Join("..", "..", path))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// readMetrics returns the labels of each listed series.
func readMetrics(t *testing.T) map[string][]string {
	t.Helper()
	var content []byte
	for _, file := range []string{shown, onNodes} {
		lines, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		content = append(content, lines...)
	}
	series := map[string][]string{"up": added}
	for line := range strings.Lines(string(content)) {
		fields := strings.Fields(line)
		names := append(slices.Clone(added), fields[2:]...)
		if fields[1] != "histogram" {
			series[fields[0]] = names
			continue
		}
		series[fields[0]+"_sum"], series[fields[0]+"_count"] = names, names
		series[fields[0]+"_bucket"] = append(slices.Clone(names), "le")
	}
	return series
}

func TestExpressions_UseExistingMetrics(t *testing.T) {
	series := readMetrics(t)
	for name, rule := range parseRules(t) {
		t.Run(name, func(t *testing.T) { check(t, series, rule.Expr) })
	}
	for title, expressions := range readDashboard(t) {
		t.Run(title, func(t *testing.T) {
			for _, expression := range expressions {
				check(t, series, expression)
			}
		})
	}
}

// check checks that an expression uses only existing series and labels.
func check(t *testing.T, series map[string][]string, text string) {
	t.Helper()
	expression, err := parser.NewParser(parser.Options{}).ParseExpr(text)
	if err != nil {
		t.Errorf("%s: %v", text, err)
		return
	}
	var all []string // labels of all selected series
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		selector, ok := node.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		known, ok := series[selector.Name]
		if !ok {
			t.Errorf("no metric %s", selector.Name)
		}
		all = append(all, known...)
		for _, m := range selector.LabelMatchers {
			if m.Name != model.MetricNameLabel && !slices.Contains(known, m.Name) {
				t.Errorf("%s has no label %s", selector.Name, m.Name)
			}
		}
		return nil
	})
	parser.Inspect(expression, func(node parser.Node, _ []parser.Node) error {
		if aggregate, ok := node.(*parser.AggregateExpr); ok {
			for _, name := range aggregate.Grouping {
				if !slices.Contains(all, name) {
					t.Errorf("%s: no label %s", text, name)
				}
			}
		}
		return nil
	})
}

// readDashboard returns the expressions of each panel of the dashboard, with values instead
// of Grafana's variables.
func readDashboard(t *testing.T) map[string][]string {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(read(t, "config/monitoring/gleaner.json"), &dashboard); err != nil {
		t.Fatal(err)
	}
	variables := strings.NewReplacer("$namespace", "gleaner-system", "$__rate_interval", "5m")
	panels, seen := map[string][]string{}, map[int]bool{}
	for _, p := range dashboard.Panels {
		if seen[p.ID] || panels[p.Title] != nil || len(p.Targets) == 0 {
			t.Errorf("panel %d, %q, is a duplicate or empty", p.ID, p.Title)
		}
		seen[p.ID] = true
		for _, target := range p.Targets {
			panels[p.Title] = append(panels[p.Title], variables.Replace(target.Expr))
		}
	}
	return panels
}

func TestMetrics_AreOnTheDashboardOrInAnAlert(t *testing.T) {
	var text strings.Builder
	for _, rule := range parseRules(t) {
		text.WriteString(rule.Expr + "\n")
	}
	for _, expressions := range readDashboard(t) {
		text.WriteString(strings.Join(expressions, "\n") + "\n")
	}
	for name := range readMetrics(t) {
		name = strings.TrimSuffix(strings.TrimSuffix(name, "_sum"), "_count")
		if strings.HasPrefix(name, "gleaner_") && !strings.Contains(text.String(), name) {
			t.Errorf("%s is not used", name)
		}
	}
}
