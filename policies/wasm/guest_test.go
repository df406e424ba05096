package wasm_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm"
)

// stock is testdata/guest as the Go toolchain that runs the test compiles it.
var stock = sync.OnceValues(func() ([]byte, error) {
	folder, err := os.MkdirTemp("", "gleaner-guest")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(folder) }()
	out := filepath.Join(folder, "guest.wasm")
	build := exec.Command("go", "build", "-buildmode=c-shared", "-o", out, "./testdata/guest")
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm")
	if message, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build the guest: %w\n%s", err, message)
	}
	return os.ReadFile(out)
})

func stockCode(t testing.TB) []byte {
	t.Helper()
	code, err := stock()
	if err != nil {
		t.Fatal(err)
	}
	return code
}

// shared is the engine of all tests that have no wishes, so that the stock guest
// is compiled once. That may take longer than by default: under the race detector, beside other
// packages, the usual minute is not enough.
var shared = sync.OnceValues(func() (*wasm.Engine, error) { return wasm.New(wasm.Config{CompileTimeout: 10 * time.Minute}) })

func engine(t testing.TB) *wasm.Engine {
	t.Helper()
	e, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func load(t testing.TB, e *wasm.Engine, code []byte) *wasm.Module {
	t.Helper()
	m, err := e.Load(t.Context(), code)
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	t.Cleanup(m.Close)
	return m
}

func policy(t testing.TB, m *wasm.Module, o wasm.Options) *wasm.Policy {
	t.Helper()
	o.Name = "test"
	p, err := wasm.NewPolicy(t.Context(), m, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// stockModule stays loaded, so that it is compiled once for all tests.
var stockModule = sync.OnceValues(func() (*wasm.Module, error) {
	code, err := stock()
	if err != nil {
		return nil, err
	}
	e, err := shared()
	if err != nil {
		return nil, err
	}
	return e.Load(context.Background(), code) //nolint:forbidigo // it outlives the test that is first
})

// stockPolicy is a policy with the stock guest for its module.
func stockPolicy(t testing.TB, o wasm.Options) *wasm.Policy {
	t.Helper()
	m, err := stockModule()
	if err != nil {
		t.Fatal(err)
	}
	return policy(t, m, o)
}

// ask is a request that asks the stock guest to do something.
func ask(do string, count int) hostabi.Request {
	settings, err := json.Marshal(map[string]any{"do": do, "count": count})
	if err != nil {
		panic(err) // it is a map of a string and a number
	}
	return hostabi.Request{
		Hook:   hostabi.HookCollect,
		Policy: hostabi.Policy{Name: "test", Settings: settings},
		Object: hostabi.Object{Metadata: hostabi.Metadata{
			Name: "data", Namespace: "default",
			Labels: map[string]string{"a": "1", "b": "2", "c": "3", "d": "4", "e": "5", "f": "6", "g": "7", "h": "8"},
		}},
		Owners: []hostabi.Owner{{
			Reference: hostabi.Reference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "db", UID: "0af"},
			Status:    hostabi.OwnerAbsent,
		}},
		Time: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC),
	}
}

// wantFault fails the test unless the error is a fault of that kind.
func wantFault(t testing.TB, err error, kind policies.FaultKind) *policies.Fault {
	t.Helper()
	fault := new(policies.Fault)
	if !errors.As(err, &fault) {
		t.Fatalf("got %v, want a fault", err)
	}
	if fault.Kind != kind {
		t.Fatalf("got a fault of kind %s, want %s: %v", fault.Kind, kind, err)
	}
	return fault
}
