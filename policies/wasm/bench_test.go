package wasm_test

import (
	"testing"

	"github.com/gleaner-dev/gleaner/policies/wasm"
)

// BenchmarkColdStart compiles the stock guest: without a cache, and as a process
// does that finds it on disk.
func BenchmarkColdStart(b *testing.B) {
	code := stockCode(b)
	b.ReportMetric(float64(len(code))/1e6, "MB")
	start := func(b *testing.B, dir string) {
		e, err := wasm.New(wasm.Config{CacheDir: dir})
		if err != nil {
			b.Fatal(err)
		}
		defer e.Close()
		m, err := e.Load(b.Context(), code)
		if err != nil {
			b.Fatal(err)
		}
		m.Close()
	}
	b.Run("compile", func(b *testing.B) {
		for b.Loop() {
			start(b, "")
		}
	})
	b.Run("cached", func(b *testing.B) {
		dir := b.TempDir()
		start(b, dir)
		for b.Loop() {
			start(b, dir)
		}
	})
}

// BenchmarkPolicy initialises a policy: what a fresh instance for each call would
// cost besides the call.
func BenchmarkPolicy(b *testing.B) {
	m := load(b, engine(b), stockCode(b))
	for b.Loop() {
		p, err := wasm.NewPolicy(b.Context(), m, wasm.Options{Name: "bench"})
		if err != nil {
			b.Fatal(err)
		}
		p.Close()
	}
}

// BenchmarkCall asks the stock guest, which parses a request of 600 bytes.
func BenchmarkCall(b *testing.B) {
	request := ask("", 0)
	b.Run("restored", func(b *testing.B) {
		p := stockPolicy(b, wasm.Options{})
		var a wasm.Answer
		for b.Loop() {
			var err error
			if a, err = p.Ask(b.Context(), request); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(a.Fuel), "units")
		b.ReportMetric(float64(a.Memory)/(1<<20), "MiB")
	})
	b.Run("parallel", func(b *testing.B) {
		p := stockPolicy(b, wasm.Options{})
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if _, err := p.Ask(b.Context(), request); err != nil {
					b.Error(err)
					return
				}
			}
		})
	})
}
