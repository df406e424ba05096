package wasm_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm"
	"github.com/gleaner-dev/gleaner/policies/wasm/asm"
)

func TestLoad_RejectsInvalidModule(t *testing.T) {
	for _, c := range []struct {
		claim string
		code  func() []byte
		words []string
	}{
		{"all undeclared imports are named at once", func() []byte {
			m := newModule()
			m.Import("env", "launch", nil, nil)
			m.Import("wasi_snapshot_preview1", "path_unlink", nil, nil)
			m.Import("gleaner_v2", "log", nil, nil)
			m.Import("env", "launch", nil, nil)
			return m.answers(abstain)
		}, []string{"unknown imports: env.launch, wasi_snapshot_preview1.path_unlink, gleaner_v2.log"}},

		{"an import of another type is named with both types", func() []byte {
			m := &module{}
			m.Import("gleaner_v1", "log", []byte{asm.I64}, nil)
			return m.answers(abstain)
		}, []string{"gleaner_v1.log with the type (i64) → () (its type is (i32, i32, i32) → ())"}},

		{"a function of megabytes", func() []byte {
			return newModule().answers(abstain, bytes.Repeat(asm.Nop, 4<<20))
		}, []string{"bytes of code, which is over the limit of"}},

		{"no hook", func() []byte {
			m := newModule()
			m.Hook("decide")
			return m.Bytes()
		}, []string{"it exports no hook: it must export a function for each hook that it implements, of propagate, collect, protect, retain, finalize, validate"}},

		{"a command", func() []byte {
			m := newModule()
			m.Hook("_start")
			return m.Bytes()
		}, []string{"it is a command, and must be a reactor", "-buildmode=c-shared"}},

		{"what it needs with parameters", func() []byte {
			m := newModule()
			m.Func("needs_metadata", []byte{asm.I32}, nil, 0)
			return m.answers(abstain)
		}, []string{"it exports needs_metadata, which must be a function without parameters and results"}},

		{"a hook with parameters", func() []byte {
			m := newModule()
			m.Func("collect", []byte{asm.I32}, nil, 0)
			return m.Bytes()
		}, []string{"it exports collect, which must be a function without parameters and results"}},

		{"what is no module", func() []byte { return []byte("#!/bin/sh") }, []string{"it is not a WebAssembly module"}},

		{"nothing", func() []byte { return nil }, []string{"it is not a WebAssembly module"}},

		{"code that is ill typed", func() []byte {
			return newModule().answers(abstain, asm.Drop)
		}, []string{"it is not a valid module"}},
	} {
		t.Run(c.claim, func(t *testing.T) {
			_, err := engine(t).Load(t.Context(), c.code())
			refusal := new(wasm.RejectedError)
			if !errors.As(err, &refusal) {
				t.Fatalf("got %v, want a refusal", err)
			}
			for _, words := range c.words {
				if !strings.Contains(refusal.Message, words) {
					t.Errorf("the message is %q, want %q in it", refusal.Message, words)
				}
			}
		})
	}
}

func TestNewPolicy_InitializationFails(t *testing.T) {
	for _, c := range []struct {
		claim string
		code  func(*module) []byte
		kind  policies.FaultKind
		words string
	}{
		{"an endless loop in the start function", func(m *module) []byte {
			m.Start(m.Func("", nil, nil, 0, asm.Forever()))
			return m.answers(abstain)
		}, policies.FaultFuelExhausted, "during initialization, start function: it used up its fuel"},

		{"an endless loop in _initialize", func(m *module) []byte {
			m.Hook("_initialize", asm.Forever())
			return m.answers(abstain)
		}, policies.FaultFuelExhausted, "during initialization, it used up its fuel"},

		{"an endless recursion in the start function", func(m *module) []byte {
			self := m.log + 1
			m.Start(m.Func("", nil, nil, 0, asm.Call(self)))
			return m.answers(abstain)
		}, policies.FaultFuelExhausted, "during initialization, start function: it used up its fuel"},

		{"a memory bomb in _initialize", func(m *module) []byte {
			grow := append(asm.I32Const(256), asm.MemoryGrow...)
			failed := append(asm.I32Const(1), asm.I32Add...)
			m.Hook("_initialize", asm.Forever(grow, failed, asm.I32Eqz, asm.If(asm.Unreachable)))
			return m.answers(abstain)
		}, policies.FaultMemoryLimit, "during initialization, it needed more memory than its limit of 32 MiB"},

		{"a trap in _initialize", func(m *module) []byte {
			m.Hook("_initialize", asm.Unreachable)
			return m.answers(abstain)
		}, policies.FaultTrapped, "during initialization, it trapped: unreachable"},

		{"a request read too early", func(m *module) []byte {
			m.Hook("_initialize", asm.Call(m.read, 0, 0), asm.Drop)
			return m.answers(abstain)
		}, policies.FaultInvalidCall, "there is no request"},

		{"a verdict written too early", func(m *module) []byte {
			m.Hook("_initialize", asm.Call(m.write, 0, 0))
			return m.answers(abstain)
		}, policies.FaultInvalidCall, "there is no request"},

		{"more memory than it may have, to begin with", func(m *module) []byte {
			m.Memory(1000, 2000)
			return m.answers(abstain)
		}, policies.FaultRejected, "its initial memory of 64000 KiB exceeds its limit of 32 MiB"},

		{"data outside of its memory", func(m *module) []byte {
			m.Data(-1, []byte("x"))
			return m.answers(abstain)
		}, policies.FaultRejected, "it cannot be instantiated"},
	} {
		t.Run(c.claim, func(t *testing.T) {
			m := load(t, engine(t), c.code(newModule()))
			_, err := wasm.NewPolicy(t.Context(), m, wasm.Options{Name: "test", Limits: hostileLimits})
			if fault := wantFault(t, err, c.kind); !strings.Contains(fault.Message, c.words) {
				t.Errorf("the message is %q, want %q in it", fault.Message, c.words)
			}
		})
	}
}

func TestLoad_DescribesModule(t *testing.T) {
	m := newModule()
	m.Hook("validate")
	m.Hook("propagate")
	code := m.answers(abstain)
	got := load(t, engine(t), code)
	want := []any{len(code), []hostabi.Hook{"propagate", "collect", "validate"},
		[]string{"gleaner_v1.request_read", "gleaner_v1.verdict_write", "gleaner_v1.log"}}
	if diff := cmp.Diff(want, []any{got.Size, got.Hooks, got.Imports}); diff != "" {
		t.Errorf("size, hooks and imports (-want +got):\n%s", diff)
	}
	if len(got.Digest) != 64 {
		t.Errorf("the digest is %q", got.Digest)
	}
}

func TestEvaluate_MissingHookIsFault(t *testing.T) {
	p := policy(t, load(t, engine(t), newModule().answers(abstain)), wasm.Options{})
	request := ask("", 0)
	request.Hook = hostabi.HookFinalize
	_, err := p.Evaluate(t.Context(), request)
	fault := wantFault(t, err, policies.FaultMissingHook)
	if want := "its module exports no hook finalize"; fault.Message != want {
		t.Errorf("the message is %q, want %q", fault.Message, want)
	}
}

func TestEvaluate_RejectsDoneContext(t *testing.T) {
	p := policy(t, load(t, engine(t), newModule().answers(abstain)), wasm.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := p.Evaluate(ctx, ask("", 0))
	if fault := new(policies.Fault); errors.As(err, &fault) || !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the context was canceled, and nobody's fault", err)
	}
}

func TestEvaluate_LargeRequestIsNoFault(t *testing.T) {
	p := policy(t, load(t, engine(t), newModule().answers(abstain)), wasm.Options{})
	request := ask("", 0)
	request.IdempotencyKey = strings.Repeat("x", hostabi.MaxRequestBytes)
	_, err := p.Evaluate(t.Context(), request)
	if fault := new(policies.Fault); err == nil || errors.As(err, &fault) {
		t.Errorf("got %v, want an error that is nobody's fault", err)
	}
}

func TestNeeds_AreWhatAModuleDeclares(t *testing.T) {
	for want, exports := range map[policies.Needs][][]string{
		policies.NeedsObject:    {nil, {"needs"}},
		policies.NeedsMetadata:  {{"needs_metadata"}, {"needs_metadata", "needs_reference"}},
		policies.NeedsReference: {{"needs_reference"}},
	} {
		for _, names := range exports {
			m := newModule()
			for _, name := range names {
				m.Hook(name)
			}
			if got := load(t, engine(t), m.answers(abstain)).Needs; got != want {
				t.Errorf("%q: it needs %s, want %s", names, got, want)
			}
		}
	}
}
