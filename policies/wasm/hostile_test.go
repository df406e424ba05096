package wasm_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm"
	"github.com/gleaner-dev/gleaner/policies/wasm/asm"
)

// module is one with the functions of the ABI and a memory of one page.
type module struct {
	asm.Module
	read, write, log uint32
}

func newModule() *module {
	m := &module{}
	m.read = m.Import("gleaner_v1", "request_read", []byte{asm.I32, asm.I32}, []byte{asm.I32})
	m.write = m.Import("gleaner_v1", "verdict_write", []byte{asm.I32, asm.I32}, nil)
	m.log = m.Import("gleaner_v1", "log", []byte{asm.I32, asm.I32, asm.I32}, nil)
	m.Memory(1, 1<<16)
	return m
}

// answers has the hook collect run code, and then write the verdict.
func (m *module) answers(verdict string, code ...[]byte) []byte {
	const at = 1024
	m.Data(at, []byte(verdict))
	m.Hook("collect", append(code, asm.Call(m.write, at, int32(len(verdict))))...)
	return m.Bytes()
}

const abstain = `{"decision": "Abstain"}`

// hostile is a module that is wrong in one way.
type hostile struct {
	claim   string
	code    func(*module) []byte
	kind    policies.FaultKind
	message string // in the message
}

// atCall are modules that begin well.
var atCall = []hostile{
	{"an endless loop runs out of fuel", func(m *module) []byte {
		return m.answers(abstain, asm.Forever())
	}, policies.FaultFuelExhausted, "it used up its fuel of 10000000 units"},

	{"an endless recursion runs out of fuel or stack", func(m *module) []byte {
		self := m.log + 1
		m.Func("", nil, nil, 0, asm.Call(self))
		return m.answers(abstain, asm.Call(self))
	}, policies.FaultFuelExhausted, "fuel"},

	{"a deep recursion with large frames runs out of stack", func(m *module) []byte {
		self := m.log + 1
		m.Func("", nil, nil, 200, deepFrame(self))
		return m.answers(abstain, asm.Call(self))
	}, "", ""},

	{"a memory bomb ends at the limit of memory", func(m *module) []byte {
		grow := append(asm.I32Const(256), asm.MemoryGrow...)
		failed := append(asm.I32Const(1), asm.I32Add...)
		return m.answers(abstain, asm.Forever(grow, failed, asm.I32Eqz, asm.If(asm.Unreachable)))
	}, policies.FaultMemoryLimit, "it needed more memory than its limit of 32 MiB and aborted: unreachable"},

	{"a verdict that is too long", func(m *module) []byte {
		m.Hook("collect", asm.Call(m.write, 0, hostabi.MaxVerdictBytes+1))
		return m.Bytes()
	}, policies.FaultInvalidVerdict, "its verdict has 1048577 bytes, which exceeds the limit of 1048576"},

	{"a verdict that is not UTF-8", func(m *module) []byte {
		return m.answers("{\"decision\": \"Abstain\", \"reason\": \"\xff\"}")
	}, policies.FaultInvalidVerdict, "UTF-8"},

	{"a verdict that is not JSON", func(m *module) []byte {
		return m.answers("Delete")
	}, policies.FaultInvalidVerdict, "verdict"},

	{"a decision that there is not", func(m *module) []byte {
		return m.answers(`{"decision": "Obliterate"}`)
	}, policies.FaultInvalidVerdict, `"Obliterate"`},

	{"a verdict on another hook's question", func(m *module) []byte {
		return m.answers(`{"decision": "Done"}`)
	}, policies.FaultInvalidVerdict, "Done"},

	{"no verdict", func(m *module) []byte {
		m.Hook("collect")
		return m.Bytes()
	}, policies.FaultNoVerdict, "its hook collect returned without a verdict"},

	{"two verdicts", func(m *module) []byte {
		return m.answers(abstain, asm.Call(m.write, 1024, int32(len(abstain))))
	}, policies.FaultInvalidCall, "it called verdict_write twice"},

	{"a verdict outside of its memory", func(m *module) []byte {
		m.Hook("collect", asm.Call(m.write, 65530, 100))
		return m.Bytes()
	}, policies.FaultInvalidCall, "it called verdict_write with 100 bytes at 0xfffa, outside of its memory of 65536 bytes"},

	{"a request read to outside of its memory", func(m *module) []byte {
		return m.answers(abstain, asm.Call(m.read, -16, -1), asm.Drop)
	}, policies.FaultInvalidCall, "it called request_read with"},

	{"a line of its log outside of its memory", func(m *module) []byte {
		return m.answers(abstain, asm.Call(m.log, 1, -1, 1))
	}, policies.FaultInvalidCall, "it called log with 1 bytes at 0xffffffff"},

	{"a load outside of its memory", func(m *module) []byte {
		return m.answers(abstain, asm.I32Load(-4), asm.Drop)
	}, policies.FaultTrapped, "it trapped: out of bounds memory access"},

	{"a line of its log from no memory", func(*module) []byte {
		m := &module{}
		m.log = m.Import("gleaner_v1", "log", []byte{asm.I32, asm.I32, asm.I32}, nil)
		m.Hook("collect", asm.Call(m.log, 1, 0, 10))
		return m.Bytes()
	}, policies.FaultInvalidCall, "it called log with 10 bytes at 0x0, outside of its memory of 0 bytes"},

	{"a request read to no memory", func(*module) []byte {
		m := &module{}
		m.read = m.Import("gleaner_v1", "request_read", []byte{asm.I32, asm.I32}, []byte{asm.I32})
		m.Hook("collect", asm.Call(m.read, 0, 100_000), asm.Drop)
		return m.Bytes()
	}, policies.FaultInvalidCall, "outside of its memory of 0 bytes"},

	{"a flood of its log runs out of fuel", func(m *module) []byte {
		return m.answers(abstain, asm.Forever(asm.Call(m.log, 1, 0, 1000)))
	}, policies.FaultFuelExhausted, "fuel"},

	{"one that sleeps for ever runs out of fuel", func(m *module) []byte {
		poll := m.Import("wasi_snapshot_preview1", "poll_oneoff", []byte{asm.I32, asm.I32, asm.I32, asm.I32}, []byte{asm.I32})
		return m.answers(abstain, asm.Forever(asm.Call(poll, 0, 512, 1, 768), asm.Drop))
	}, policies.FaultFuelExhausted, "fuel"},

	{"a log of more than its memory runs out of fuel before it is read", func(m *module) []byte {
		return m.answers(abstain, asm.Forever(asm.Call(m.log, 1, 0, -1)))
	}, policies.FaultFuelExhausted, "fuel"},
}

// TestWASI_RejectsInvalidPointers holds for functions that say so to
// the module, which goes on.
func TestWASI_RejectsInvalidPointers(t *testing.T) {
	const fault = 21
	params := func(n int) []byte { return bytes.Repeat([]byte{asm.I32}, n) }
	for _, c := range []struct {
		function string
		args     []int32
	}{
		{"args_sizes_get", []int32{-4, 0}},
		{"environ_sizes_get", []int32{0, -4}},
		{"random_get", []int32{-16, 100}},
		{"fd_fdstat_get", []int32{1, -4}},
		{"fd_write", []int32{1, -8, 1, 0}},
		{"poll_oneoff", []int32{-4, 0, 1, 0}},
		{"poll_oneoff", []int32{0, -4, 1, 0}},
		{"poll_oneoff", []int32{0, 0, 1, -4}},
	} {
		t.Run(fmt.Sprint(c.function, c.args), func(t *testing.T) {
			m := newModule()
			f := m.Import("wasi_snapshot_preview1", c.function, params(len(c.args)), params(1))
			isFault := slices.Concat(asm.I32Const(-fault), asm.I32Add, asm.If(asm.Unreachable))
			p := policy(t, load(t, engine(t), m.answers(abstain, asm.Call(f, c.args...), isFault)), wasm.Options{Limits: hostileLimits})
			if got, err := p.Evaluate(t.Context(), ask("", 0)); err != nil || got.Decision != hostabi.DecisionAbstain {
				t.Errorf("got %v, %v, want that it was told of a fault", got, err)
			}
		})
	}
}

// deepFrame keeps 200 locals alive across a call of itself.
func deepFrame(self uint32) []byte {
	var b []byte
	for i := range byte(100) {
		b = append(b, 0x20, i, 0x42, 1, 0x7c, 0x21, i) // local += 1
	}
	b = append(b, asm.Call(self)...)
	for i := range byte(100) {
		b = append(b, 0x20, i, 0x42, 1, 0x7c, 0x21, i)
	}
	return b
}

// healthy fails the test unless the engine still serves the stock guest well.
func healthy(t *testing.T, p *wasm.Policy) {
	t.Helper()
	got, err := p.Evaluate(t.Context(), ask("calls", 0))
	if err != nil || got.Reason != "1" {
		t.Errorf("a neighbour answers %v, %v", got, err)
	}
}

var hostileLimits = wasm.Limits{Fuel: 10_000_000, Memory: 32 << 20}

func TestEvaluate_HostileModuleIsFault(t *testing.T) {
	neighbour := stockPolicy(t, wasm.Options{})
	for _, c := range atCall {
		t.Run(c.claim, func(t *testing.T) {
			p := policy(t, load(t, engine(t), c.code(newModule())), wasm.Options{Limits: hostileLimits})
			first := ""
			for range 3 {
				a, err := p.EvaluateMetered(t.Context(), ask("", 0))
				if c.kind == "" {
					if err == nil {
						t.Error("it answered")
					}
					t.Log(err)
					continue
				}
				fault := wantFault(t, err, c.kind)
				if !strings.Contains(fault.Message, c.message) {
					t.Errorf("the message is %q, want %q in it", fault.Message, c.message)
				}
				if a.Verdict.Decision != "" {
					t.Errorf("a fault came with the decision %s", a.Verdict.Decision)
				}
				if first == "" {
					first = fault.Message
				}
				if fault.Message != first {
					t.Errorf("the same request gave first %q, then %q", first, fault.Message)
				}
			}
			healthy(t, neighbour)
		})
	}
}
