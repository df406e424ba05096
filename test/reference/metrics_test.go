package reference

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// makers are the functions that make a metric out of options, and its type.
var makers = map[string]string{
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

At ` + "`/metrics`" + ` on ` + "`--metrics-bind-address`" + `, by HTTPS with a bearer token ([how](../../README.md#asking-it)). This page is written from the code, by
` + "`make generate`" + `. Beside these there are those of client-go and controller-runtime (` + "`workqueue_*`" + ` with ` + "`name=\"gleaner\"`" + `,
` + "`rest_client_*`, `controller_runtime_*`" + `) and of the Go runtime (` + "`go_*`, `process_*`" + `). What to watch for is told by the
alert rules in [config](../../config) and by [troubleshooting](../troubleshooting.md).

| metric | type | labels | |
|---|---|---|---|
`

func describeMetrics(t *testing.T, code source) string {
	list := code.metrics(t)
	if len(list) == 0 {
		t.Error("no metrics are found")
	}
	var b strings.Builder
	b.WriteString(metricsPreamble)
	for _, m := range list {
		b.WriteString(row("`"+m.name+"`", m.kind, codes(m.labels), plain(m.help)))
	}
	return b.String()
}

// metrics finds what is made by the functions of package prometheus.
func (s *source) metrics(t *testing.T) []metric {
	t.Helper()
	var list []metric
	s.each(func(f file, n ast.Node) {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return
		}
		m, is := s.metric(f, call)
		if !is {
			return
		}
		if m.name == "" || m.help == "" {
			t.Errorf("%s: the name or the help of a metric can't be read: write constants", f.name)
			return
		}
		list = append(list, m)
	})
	slices.SortFunc(list, func(a, b metric) int { return strings.Compare(a.name, b.name) })
	return list
}

func (s *source) metric(f file, call *ast.CallExpr) (metric, bool) {
	m := metric{file: f.name}
	switch kind, isMaker := makers[called(call)]; {
	case selector(call.Fun) == "prometheus.NewDesc" && len(call.Args) == 4:
		m.name, _ = s.text(f, call.Args[0])
		m.help, _ = s.text(f, call.Args[1])
		m.kind = "gauge"
		if strings.HasSuffix(m.name, "_total") { // as promlint wants it
			m.kind = "counter"
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

// field returns the text that a field of a literal has.
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
