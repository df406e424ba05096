package rego

import (
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// BenchmarkEngine measures a policy from its source to calls, with fuel, as it is
// always run.
func BenchmarkEngine(b *testing.B) {
	b.Run("source", func(b *testing.B) { // to WebAssembly, by OPA's compiler
		for b.Loop() {
			c, err := compileFiles(b.Context(), []File{keep})
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(len(c.code))/1e6, "MB")
		}
	})
	b.Run("compile", func(b *testing.B) {
		for b.Loop() {
			compileIn(b, "")
		}
	})
	b.Run("cached", func(b *testing.B) {
		dir := b.TempDir()
		compileIn(b, dir)
		for b.Loop() {
			compileIn(b, dir)
		}
	})
	m, err := newEngine(b).Load(b.Context(), []File{keep})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(m.Close)
	benchmarkCalls(b, m)
}

// compileIn loads a policy as a process does that begins.
func compileIn(b *testing.B, dir string) {
	e, err := New(Config{CacheDir: dir})
	if err != nil {
		b.Fatal(err)
	}
	defer e.Close()
	m, err := e.Load(b.Context(), []File{keep})
	if err != nil {
		b.Fatal(err)
	}
	m.Close()
}

func benchmarkCalls(b *testing.B, m *Module) {
	start := func(b *testing.B) *Policy {
		p, err := NewPolicy(b.Context(), m, Options{Name: "bench"})
		if err != nil {
			b.Fatal(err)
		}
		return p
	}
	question := request("collect", map[string]string{"a": "1", "b": "2", "c": "3", "keep": "true"}, hostabi.OwnerAbsent)
	ask := func(b *testing.B, p *Policy) Evaluation {
		a, err := p.EvaluateMetered(b.Context(), question)
		if err != nil {
			b.Fatal(err)
		}
		return a
	}
	b.Run("fresh", func(b *testing.B) { // a policy is started, and asked once
		for b.Loop() {
			p := start(b)
			ask(b, p)
			p.Close()
		}
	})
	b.Run("restored", func(b *testing.B) {
		p := start(b)
		b.Cleanup(p.Close)
		var a Evaluation
		for b.Loop() {
			a = ask(b, p)
		}
		b.ReportMetric(float64(a.Fuel), "units")
		b.ReportMetric(float64(a.Memory)/1024, "KiB")
	})
	b.Run("memory", func(b *testing.B) { // of a policy with one instance, beyond the module's code
		const many = 200
		for b.Loop() {
			var all []*Policy
			before := resident(b)
			for range many {
				p := start(b)
				ask(b, p)
				all = append(all, p)
			}
			b.ReportMetric((resident(b)-before)/1024/many, "KiB/policy")
			for _, p := range all {
				p.Close()
			}
		}
	})
}

// resident is the memory of this process, in bytes.
func resident(b *testing.B) float64 {
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip(err)
	}
	pages, err := strconv.Atoi(strings.Fields(string(text))[1])
	if err != nil {
		b.Fatal(err)
	}
	return float64(pages * os.Getpagesize())
}
