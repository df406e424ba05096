package wasm_test

import (
	"os"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/wasm"
)

func BenchmarkTmp(b *testing.B) {
	code, err := os.ReadFile(os.Getenv("GUEST"))
	if err != nil {
		b.Skip(err)
	}
	e, err := wasm.New(wasm.Config{CacheDir: "/tmp/wm/cache"})
	if err != nil {
		b.Fatal(err)
	}
	m := load(b, e, code)
	p := policy(b, m, wasm.Options{})
	r := ask("", 0)
	r.Policy.Settings = nil
	r.Hook = m.Hooks[0]
	_ = hostabi.Version
	var a wasm.Answer
	var in time.Duration
	n, restored := 0, 0
	for b.Loop() {
		a, err = p.Ask(b.Context(), r)
		if err != nil {
			b.Fatal(err)
		}
		in += a.Elapsed
		n++
		if a.Restored {
			restored++
		}
	}
	b.ReportMetric(float64(in.Nanoseconds())/float64(n), "inside-ns")
	b.ReportMetric(float64(restored)/float64(n), "restored")
	b.ReportMetric(float64(a.Memory)/(1<<20), "MiB")
	b.ReportMetric(float64(a.Fuel), "units")
	b.ReportMetric(float64(p.InitFuel), "init-units")
}
