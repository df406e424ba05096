package rego

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tetratelabs/wazero/api"

	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// Exports of a compiled policy, by OPA's ABI, version 1.2. Addresses of values
// belong to the module and are not dereferenced by the host.
const (
	exportBuiltins = "builtins"         // () → a value: the built-ins of the host, by name
	exportMalloc   = "opa_malloc"       // (bytes) → address
	exportHeap     = "opa_heap_ptr_get" // () → start of free memory
	exportEval     = "opa_eval"         // (…) → a text: the results
	exportParse    = "opa_value_parse"  // (text, length) → a value
	exportDump     = "opa_value_dump"   // (value) → a text, as Rego writes it
	exportDumpJSON = "opa_json_dump"    // (value) → a text, as JSON
)

// maxTextBytes is the maximum length of a list of built-ins or of a message, in
// bytes.
const maxTextBytes = 64 << 10

// errUndefined reports that a rule is undefined for a request.
var errUndefined = errors.New("undefined")

// guest is an instance of a compiled policy.
type guest struct{ *sandbox.Instance }

// alignment of addresses that the module allocates, in bytes.
const alignment = 8

// trapf reports that a guest aborted its call, or violated OPA's ABI.
func trapf(format string, args ...any) *sandbox.TrapError {
	return &sandbox.TrapError{Kind: sandbox.Trapped, Message: fmt.Sprintf(format, args...)}
}

// call calls an export with a single result.
func (g guest) call(ctx context.Context, name string, args ...uint64) (uint32, error) {
	results, err := g.Call(ctx, name, args...)
	if err != nil {
		return 0, err
	}
	return api.DecodeU32(results[0]), nil
}

// writeBytes allocates memory in the module and writes data to it.
func (g guest) writeBytes(ctx context.Context, data []byte) (uint32, error) {
	addr, err := g.call(ctx, exportMalloc, uint64(len(data)))
	if err != nil {
		return 0, err
	}
	if !g.Write(addr, data) {
		return 0, trapf("it returned an invalid address for %d bytes", len(data))
	}
	return addr, nil
}

// readText reads a zero-terminated text. It is valid until the module runs again.
func (g guest) readText(addr uint32, limit int) ([]byte, error) {
	rest := g.MemorySize() - int(addr)
	all, ok := g.Read(addr, uint32(max(0, min(rest, limit+1))))
	if !ok || rest <= 0 {
		return nil, trapf("it returned an invalid address of a text")
	}
	end := bytes.IndexByte(all, 0)
	if end < 0 {
		return nil, trapf("it returned a text of more than %d bytes", limit)
	}
	return all[:end], nil
}

// writeInput writes a request to a module that has not run yet, and returns its address and
// the start of free memory behind it. Without calling the module, it uses the memory that
// is free from the address heap on, as OPA's SDK does. If that is too small, the module must
// allocate it.
func (g guest) writeInput(ctx context.Context, request []byte, heap uint32) (input, free uint32, err error) {
	if g.Write(heap, request) {
		end := heap + uint32(len(request))
		return heap, (end + alignment - 1) &^ (alignment - 1), nil
	}
	if input, err = g.writeBytes(ctx, request); err != nil {
		return 0, 0, err
	}
	free, err = g.call(ctx, exportHeap)
	return input, free, err
}

// eval evaluates an entry point and returns its value as JSON. Free memory starts at the
// address heap.
func (g guest) eval(ctx context.Context, entry int, request []byte, heap uint32, limit int) ([]byte, error) {
	input, free, err := g.writeInput(ctx, request, heap)
	if err != nil {
		return nil, err
	}
	const reserved, noData, asJSON = 0, 0, 0
	at, err := g.call(ctx, exportEval,
		reserved, uint64(entry), noData, uint64(input), uint64(len(request)), uint64(free), asJSON)
	if err != nil {
		return nil, err
	}
	results, err := g.readText(at, limit+len(beforeResult)+len(afterResult))
	if err != nil {
		return nil, err
	}
	return singleResult(results)
}

const beforeResult, afterResult = `[{"result":`, `}]`

// singleResult extracts the value from OPA's result list, which is empty if the rule is
// undefined.
func singleResult(results []byte) ([]byte, error) {
	value, ok := bytes.CutPrefix(results, []byte(beforeResult))
	if !ok {
		return nil, errUndefined
	}
	if value, ok = bytes.CutSuffix(value, []byte(afterResult)); !ok {
		return nil, trapf("its results are malformed")
	}
	return bytes.Clone(value), nil
}

// builtinNames returns the built-ins that the host implements for the module, by
// number.
func (g guest) builtinNames(ctx context.Context) (builtinNames, error) {
	object, err := g.call(ctx, exportBuiltins)
	if err != nil {
		return nil, err
	}
	at, err := g.call(ctx, exportDumpJSON, uint64(object))
	if err != nil {
		return nil, err
	}
	listed, err := g.readText(at, maxTextBytes)
	if err != nil {
		return nil, err
	}
	var numbers map[string]uint32
	if err := json.Unmarshal(listed, &numbers); err != nil {
		return nil, fmt.Errorf("decode list of built-ins: %w", err)
	}
	names := make(builtinNames, len(numbers))
	for name, number := range numbers {
		names[number] = name
	}
	return names, nil
}

// builtinNames are the built-ins that the host implements for a module, by number.
// They are passed to the host functions in the context, since those are shared by
// all modules.
type builtinNames map[uint32]string

type namesKey struct{}

func (n builtinNames) withContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, namesKey{}, n)
}

// functions returns the imports of a compiled policy.
func functions() []sandbox.Function {
	all := []sandbox.Function{
		{Module: "env", Name: "opa_abort", Params: addresses(1), Call: abort},
		{Module: "env", Name: "opa_println", Params: addresses(1), Call: ignore},
	}
	for n := range 5 {
		all = append(all, sandbox.Function{
			Module:  "env",
			Name:    fmt.Sprintf("opa_builtin%d", n),
			Params:  addresses(n + 2), // its number, something reserved, and its arguments
			Results: addresses(1),
			Call: func(ctx context.Context, in *sandbox.Instance, stack []uint64) error {
				names, _ := ctx.Value(namesKey{}).(builtinNames)
				value, err := guest{in}.callBuiltin(ctx, names[api.DecodeU32(stack[0])], slices.Clone(stack[2:2+n]))
				stack[0] = uint64(value)
				return err
			},
		})
	}
	return all
}

func addresses(n int) []api.ValueType { return slices.Repeat([]api.ValueType{api.ValueTypeI32}, n) }

// abort is called when an evaluation cannot continue: a rule has two values, or
// memory is exhausted.
func abort(_ context.Context, in *sandbox.Instance, stack []uint64) error {
	message, err := guest{in}.readText(api.DecodeU32(stack[0]), maxTextBytes)
	if err != nil {
		return err
	}
	if in.MemoryDenied() {
		return &sandbox.TrapError{Kind: sandbox.MemoryLimit, Message: "it needed more memory than its limit"}
	}
	return trapf("%s", explainAbort(string(message)))
}

// ignore discards debug output of OPA.
func ignore(context.Context, *sandbox.Instance, []uint64) error { return nil }

// callBuiltin calls a built-in for the module: its arguments and its result are texts in
// the module's memory. Zero means undefined.
func (g guest) callBuiltin(ctx context.Context, name string, args []uint64) (uint32, error) {
	if err := g.Charge(unitsPerCall); err != nil {
		return 0, err
	}
	texts := make([]string, 0, len(args))
	for _, arg := range args {
		at, err := g.call(ctx, exportDump, arg)
		if err != nil {
			return 0, err
		}
		text, err := g.readText(at, g.MemorySize())
		if err != nil {
			return 0, err
		}
		if len(text) > maxArgumentBytes {
			return 0, &builtinError{name, fmt.Errorf("its arguments have more than %d bytes", maxArgumentBytes)}
		}
		texts = append(texts, string(text))
	}
	result, err := callBuiltin(ctx, name, texts, g.Charge)
	if err != nil || len(result) == 0 {
		return 0, err
	}
	at, err := g.writeBytes(ctx, result)
	if err != nil {
		return 0, err
	}
	value, err := g.call(ctx, exportParse, uint64(at), uint64(len(result)))
	if err == nil && value == 0 {
		err = fmt.Errorf("%s: the module cannot parse the result", name)
	}
	return value, err
}
