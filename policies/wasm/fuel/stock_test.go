package fuel_test

import (
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/imports/wasi_snapshot_preview1"

	"github.com/gleaner-dev/gleaner/policies/wasm/fuel"
)

// stockGuest is testdata/guest as the Go toolchain compiles it.
var stockGuest = sync.OnceValues(func() ([]byte, error) {
	folder, err := os.MkdirTemp("", "fuel")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	out := filepath.Join(folder, "guest.wasm")
	build := exec.Command("go", "build", "-buildmode=c-shared", "-o", out, "./testdata/guest")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if message, err := build.CombinedOutput(); err != nil {
		return message, err
	}
	return os.ReadFile(out)
})

func stock(t testing.TB) []byte {
	t.Helper()
	code, err := stockGuest()
	if err != nil {
		t.Fatalf("build the guest: %v\n%s", err, code)
	}
	return code
}

// newWASIRuntime returns an engine in which stock Go guests run.
func newWASIRuntime(t testing.TB) wazero.Runtime {
	t.Helper()
	r := newRuntime(t)
	wasi_snapshot_preview1.MustInstantiate(t.Context(), r)
	return r
}

// startStock returns an initialized instance of the guest that spends fuel.
func startStock(t testing.TB, r wazero.Runtime) *guest {
	t.Helper()
	g := instantiate(t, r, stock(t), fuel.Options{})
	if _, _, err := g.spend(t, math.MaxInt64, "_initialize"); err != nil {
		t.Fatalf("initialize the guest: %v", err)
	}
	return g
}

func BenchmarkStockGuest(b *testing.B) {
	r := newWASIRuntime(b)
	plain, err := r.InstantiateWithConfig(b.Context(), stock(b), wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize"))
	if err != nil {
		b.Fatal(err)
	}
	fuelled := startStock(b, r)
	for _, c := range []struct {
		name string
		args []uint64
	}{{"parse", nil}, {"primes", []uint64{2000}}, {"nest", []uint64{1000}}} {
		b.Run(c.name+"/plain", func(b *testing.B) { benchmarkCall(b, plain, c.name, c.args) })
		b.Run(c.name+"/fuel", func(b *testing.B) {
			fuelled.refuel(math.MaxInt64)
			benchmarkCall(b, fuelled, c.name, c.args)
			used := math.MaxInt64 - fuelled.left()
			b.ReportMetric(float64(used)/float64(b.Elapsed().Nanoseconds()), "units/ns")
		})
	}
}

func benchmarkCall(b *testing.B, m api.Module, name string, args []uint64) {
	f := m.ExportedFunction(name)
	for b.Loop() {
		if _, err := f.Call(b.Context(), args...); err != nil {
			b.Fatal(err)
		}
	}
}

// TestStockGuestDoesTheSame holds on instances that are fresh each: a stock Go
// guest that runs on draws other map orders.
func TestStockGuestDoesTheSame(t *testing.T) {
	r := newWASIRuntime(t)
	plain, err := r.InstantiateWithConfig(t.Context(), stock(t), wazero.NewModuleConfig().WithName("").WithStartFunctions("_initialize"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		function string
		args     []uint64
	}{{"parse", nil}, {"primes", []uint64{2000}}, {"nest", []uint64{1000}}} {
		want, err := plain.ExportedFunction(c.function).Call(t.Context(), c.args...)
		if err != nil {
			t.Fatal(err)
		}
		var first int64
		for range 3 {
			g := startStock(t, r)
			got, used, err := g.spend(t, ampleFuel, c.function, c.args...)
			if err != nil || got[0] != want[0] {
				t.Fatalf("%s returned %v, want %v (error: %v)", c.function, got, want, err)
			}
			if first == 0 {
				first = used
			}
			if used != first || used <= 0 {
				t.Errorf("%s used %d units, and %d before", c.function, used, first)
			}
			if g.changed() {
				t.Errorf("%s is said to have changed what cannot be put back", c.function)
			}
		}
		t.Logf("%s uses %d units", c.function, first)
	}
}

func TestStockGuestRunsOut(t *testing.T) {
	r := newWASIRuntime(t)
	g := startStock(t, r)
	_, used, err := g.spend(t, ampleFuel, "primes", 5000)
	if err != nil {
		t.Fatal(err)
	}
	for _, share := range []int64{1, 10, 100, 10_000} {
		g := startStock(t, r)
		if _, _, err := g.spend(t, used-used/share, "primes", 5000); err == nil || g.left() >= 0 {
			t.Errorf("with 1/%d less than it needs it ended with %v, and %d units were left", share, err, g.left())
		}
	}
}

// TestTinyGoGuest runs where TinyGo is installed what the stock guest does.
func TestTinyGoGuest(t *testing.T) {
	if _, err := exec.LookPath("tinygo"); err != nil {
		t.Skip("TinyGo is not installed")
	}
	out := filepath.Join(t.TempDir(), "guest.wasm")
	build := exec.CommandContext(t.Context(), "tinygo", "build", "-target=wasip1", "-buildmode=c-shared", "-scheduler=none", "-gc=leaking", "-opt=2", "-o", out, ".")
	build.Dir, build.Env = ownModule(t, "testdata/guest"), append(os.Environ(), "GOWORK=off")
	if message, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the guest: %v\n%s", err, message)
	}
	code, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	g := instantiate(t, newWASIRuntime(t), code, fuel.Options{})
	if _, _, err := g.spend(t, ampleFuel, "_initialize"); err != nil {
		t.Fatal(err)
	}
	if got, used, err := g.spend(t, ampleFuel, "primes", 100); err != nil || got[0] != 25 || used <= 0 {
		t.Errorf("primes returned %v for %d units: %v", got, used, err)
	}
}

// ownModule copies a package into a Go module of its own: that of this repository may
// need a newer Go than TinyGo takes.
func ownModule(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, "go.mod"), []byte("module example.com/guest\n\ngo 1.23\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return to
}

// What TestTinyGoGuest builds is a module that needs nothing else, in Go 1.23.
func TestTheGuestIsAModuleOfItsOwn(t *testing.T) {
	vet := exec.CommandContext(t.Context(), "go", "vet", ".")
	vet.Dir = ownModule(t, "testdata/guest")
	vet.Env = append(os.Environ(), "GOWORK=off", "GOOS=wasip1", "GOARCH=wasm")
	if out, err := vet.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
