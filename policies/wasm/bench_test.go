package wasm_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/fixed"
	"github.com/gleaner-dev/gleaner/policies/wasm"
)

// measured are modules, each as its toolchain makes it; nil where there is none.
var measured = []struct {
	name string
	code func(testing.TB) []byte
}{
	{"stock", stockCode},
	{"sdk", func(b testing.TB) []byte {
		return built(b, "go", []string{"GOOS=wasip1", "GOARCH=wasm"}, "build", "-buildmode=c-shared")
	}},
	{"tinygo", func(b testing.TB) []byte {
		return built(b, "tinygo", nil, "build", "-target=wasip1", "-buildmode=c-shared", "-scheduler=none", "-gc=leaking", "-opt=2", "-no-debug")
	}},
}

// built is the SDK's example as a toolchain makes it, nil without that.
func built(b testing.TB, toolchain string, environment []string, args ...string) []byte {
	b.Helper()
	if _, err := exec.LookPath(toolchain); err != nil {
		return nil
	}
	out := filepath.Join(b.TempDir(), "module.wasm")
	c := exec.CommandContext(b.Context(), toolchain, append(args, "-o", out, ".")...)
	c.Dir, c.Env = "../../sdk/go/examples/keep-data", append(os.Environ(), environment...)
	if message, err := c.CombinedOutput(); err != nil {
		b.Fatalf("build the module: %v\n%s", err, message)
	}
	code, err := os.ReadFile(out)
	if err != nil {
		b.Fatal(err)
	}
	return code
}

// question is a request of 600 bytes for the first hook of a module.
func question(m *wasm.Module) hostabi.Request {
	r := ask("", 0)
	r.Hook = m.Hooks[0]
	return r
}

// BenchmarkEngine measures modules from their compilation to calls, with fuel, as
// they are always run. Without fuel, parts of it are measured in package fuel.
func BenchmarkEngine(b *testing.B) {
	for _, module := range measured {
		b.Run(module.name, func(b *testing.B) {
			code := module.code(b)
			if code == nil {
				b.Skip("its toolchain is not installed")
			}
			b.Run("compile", func(b *testing.B) {
				for b.Loop() {
					compile(b, code, "")
				}
				b.ReportMetric(float64(len(code))/1e6, "MB")
			})
			b.Run("cached", func(b *testing.B) {
				dir := b.TempDir()
				compile(b, code, dir)
				for b.Loop() {
					compile(b, code, dir)
				}
			})
			benchmarkCalls(b, load(b, engine(b), code))
		})
	}
}

// compile takes a module in as a process does that begins.
func compile(b *testing.B, code []byte, dir string) {
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

func benchmarkCalls(b *testing.B, m *wasm.Module) {
	start := func(b *testing.B) *wasm.Policy {
		p, err := wasm.NewPolicy(b.Context(), m, wasm.Options{Name: "bench"})
		if err != nil {
			b.Fatal(err)
		}
		return p
	}
	b.Run("first", func(b *testing.B) { // a policy is initialised, and asked once
		for b.Loop() {
			p := start(b)
			if _, err := p.EvaluateMetered(b.Context(), question(m)); err != nil {
				b.Fatal(err)
			}
			p.Close()
		}
	})
	b.Run("fresh", func(b *testing.B) {
		p := policy(b, m, wasm.Options{})
		for b.Loop() {
			if _, err := wasm.EvaluateOnce(b.Context(), p, question(m)); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("restored", func(b *testing.B) {
		p := policy(b, m, wasm.Options{})
		calls, restored := 0.0, 0.0
		var a wasm.Evaluation
		for b.Loop() {
			var err error
			if a, err = p.EvaluateMetered(b.Context(), question(m)); err != nil {
				b.Fatal(err)
			}
			if calls++; a.Restored {
				restored++
			}
		}
		b.ReportMetric(100*restored/calls, "%restored")
		b.ReportMetric(float64(a.Fuel), "units")
		b.ReportMetric(float64(a.Memory)/1024, "KiB")
	})
	b.Run("memory", func(b *testing.B) { // of a policy with one instance, beyond the module's code
		const many = 50
		for b.Loop() {
			var all []*wasm.Policy
			before := resident(b)
			for range many {
				p := start(b)
				if _, err := p.EvaluateMetered(b.Context(), question(m)); err != nil {
					b.Fatal(err)
				}
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

// BenchmarkParallel asks from as many goroutines as there are cores.
func BenchmarkParallel(b *testing.B) {
	p := stockPolicy(b, wasm.Options{})
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := p.EvaluateMetered(b.Context(), ask("", 0)); err != nil {
				b.Error(err)
				return
			}
		}
	})
}

// BenchmarkFixed asks for a verdict that was written down.
func BenchmarkFixed(b *testing.B) {
	f, err := fixed.New("bench", map[hostabi.Hook][]byte{hostabi.HookCollect: []byte(abstain)})
	if err != nil {
		b.Fatal(err)
	}
	var p policies.Evaluator = f
	for b.Loop() {
		if _, err := p.Evaluate(b.Context(), ask("", 0)); err != nil {
			b.Fatal(err)
		}
	}
}
