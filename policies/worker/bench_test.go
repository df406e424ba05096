package worker

import (
	"slices"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/rego"
	"github.com/gleaner-dev/gleaner/policies/wasm"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// BenchmarkEvaluate compares a call in a worker with one in this process. Machines are busy at
// times, so the median counts.
func BenchmarkEvaluate(b *testing.B) {
	request := collectRequest("shop", map[string]string{"keep": "true"})
	type evaluate func() (hostabi.Verdict, error)
	run := func(name string, ask evaluate) {
		b.Run(name, func(b *testing.B) {
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				if _, err := ask(); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2]), "p50-ns")
		})
	}
	engine, err := rego.New(rego.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(engine.Close)
	m, err := engine.Load(b.Context(), []rego.File{{Name: "policy.rego", Text: keepLabeled}})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(m.Close)
	here, err := rego.NewPolicy(b.Context(), m, rego.Options{Name: "p"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(here.Close)
	p := newPool(b, Config{})
	there := start(b, p, regoSource("", "keep", keepLabeled), sandbox.Limits{})
	small := start(b, p, wasmSource("", "abstains", module()), sandbox.Limits{})
	engineWasm, err := wasm.New(wasm.Config{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(engineWasm.Close)
	mw, err := engineWasm.Load(b.Context(), module().Bytes())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(mw.Close)
	hereWasm, err := wasm.NewPolicy(b.Context(), mw, wasm.Options{Name: "p"})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(hereWasm.Close)

	run("rego/process", func() (hostabi.Verdict, error) { return here.Evaluate(b.Context(), request) })
	run("rego/worker", func() (hostabi.Verdict, error) { return there.Evaluate(b.Context(), request) })
	run("wasm/process", func() (hostabi.Verdict, error) { return hereWasm.Evaluate(b.Context(), request) })
	run("wasm/worker", func() (hostabi.Verdict, error) { return small.Evaluate(b.Context(), request) })
}
