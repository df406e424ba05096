package reference

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// metricFuncs are the functions that create a metric from options, and its type.
var metricFuncs = map[string]string{
	"NewCounter": "counter", "NewCounterVec": "counter", "NewCounterFunc": "counter",
	"NewGauge": "gauge", "NewGaugeVec": "gauge", "NewGaugeFunc": "gauge",
	"NewHistogram": "histogram", "NewHistogramVec": "histogram",
	"NewSummary": "summary", "NewSummaryVec": "summary",
}

type metric struct {
	name, kind, help, file string
	labels                 []string
}

const metricsPreamble = `# Metrics

Served at ` + "`/metrics`" + ` on ` + "`--metrics-bind-address`" + `, over HTTPS with a bearer token ([how](../../README.md#asking-it)). This page is generated from the code by
` + "`make generate`" + `. There are also the metrics of client-go and controller-runtime (` + "`workqueue_*`" + ` with ` + "`name=\"gleaner\"`" + `,
` + "`rest_client_*`, `controller_runtime_*`" + `) and of the Go runtime (` + "`go_*`, `process_*`" + `). For what to watch, see the
alert rules in [config](../../config) and [troubleshooting](../troubleshooting.md).

| metric | type | labels | |
|---|---|---|---|
`

func describeMetrics(t *testing.T, code source) string {
	list := code.metrics(t)
	if len(list) == 0 {
		t.Error("found no metrics")
	}
	var b strings.Builder
	b.WriteString(metricsPreamble)
	for _, m := range list {
		b.WriteString(row("`"+m.name+"`", m.kind, codes(m.labels), plain(m.help)))
	}
	return b.String()
}

// metrics finds the metrics created by functions of package prometheus.
func (s *source) metrics(t *testing.T) []metric {
	t.Helper()
	var list []metric
	s.visitNodes(func(f file, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		m, is := s.metric(f, call)
		if !is {
			return
		}
		if m.name == "" || m.help == "" {
			t.Errorf("%s: the name or the help of a metric is not a constant", f.name)
			return
		}
		list = append(list, m)
	})
	slices.SortFunc(list, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return list
}

func (s *source) metric(f file, call *ast.CallExpr) (metric, bool) {
	m := metric{file: f.name}
	switch kind, isMaker := metricFuncs[calleeName(call)]; {
	case selector(call.Fun) == "prometheus.NewDesc" && len(call.Args) == 4:
		m.name, _ = s.text(f, call.Args[0])
		m.help, _ = s.text(f, call.Args[1])
		m.kind = "gauge"
		switch { // as promlint requires; a gauge of seconds is a time or an age
		case strings.HasSuffix(m.name, "_total"):
			m.kind = "counter"
		case strings.HasSuffix(m.name, "_delay_seconds"):
			m.kind = "histogram"
		}
		m.labels = s.texts(f, call.Args[2])
	case isMaker && len(call.Args) != 0:
		options, ok := call.Args[0].(*ast.CompositeLit)
		if !ok || !strings.HasPrefix(selector(options.Type), "prometheus.") {
			return m, false
		}
		m.kind = kind
		m.name, m.help = s.field(f, options, "Name"), s.field(f, options, "Help")
		if len(call.Args) > 1 {
			m.labels = s.texts(f, call.Args[1])
		}
	default:
		return m, false
	}
	return m, true
}

// field returns the text of a field in a literal.
func (s *source) field(f file, lit *ast.CompositeLit, name string) string {
	for _, e := range lit.Elts {
		if kv, ok := e.(*ast.KeyValueExpr); ok {
			if key, ok := kv.Key.(*ast.Ident); ok && key.Name == name {
				text, _ := s.text(f, kv.Value)
				return text
			}
		}
	}
	return ""
}

// texts returns the texts of a literal list.
func (s *source) texts(f file, e ast.Expr) []string {
	lit, ok := e.(*ast.CompositeLit)
	if !ok {
		return nil
	}
	var list []string
	for _, e := range lit.Elts {
		if text, ok := s.text(f, e); ok {
			list = append(list, text)
		}
	}
	return list
}
