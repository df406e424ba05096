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

// What a compiled policy exports, by OPA's own ABI, version 1.2. Where these give
// or take an address of a value, the value is the module's and is not looked into.
const (
	exportBuiltins = "builtins"         // () → a value: the built-ins of the host, by name
	exportMalloc   = "opa_malloc"       // (bytes) → where they are
	exportHeap     = "opa_heap_ptr_get" // () → where free memory begins
	exportEval     = "opa_eval"         // (…) → a text: the results
	exportParse    = "opa_value_parse"  // (text, length) → a value
	exportDump     = "opa_value_dump"   // (value) → a text, as Rego writes it
	exportDumpJSON = "opa_json_dump"    // (value) → a text, as JSON
)

// longestText is what a list of built-ins or a message may have, in bytes.
const longestText = 64 << 10

// errUndefined is a rule that has no value for a request.
var errUndefined = errors.New("undefined")

// guest is an instance of a compiled policy.
type guest struct{ *sandbox.Instance }

// gaveUp is a guest that ended its call by itself, or did what OPA's compiler
// never has it do.
func gaveUp(format string, args ...any) *sandbox.Stopped {
	return &sandbox.Stopped{Kind: sandbox.Trapped, Message: fmt.Sprintf(format, args...)}
}

// call calls an export that gives one number, as all that are called here do.
func (g guest) call(ctx context.Context, name string, args ...uint64) (uint32, error) {
	results, err := g.Call(ctx, name, args...)
	if err != nil {
		return 0, err
	}
	return api.DecodeU32(results[0]), nil
}

// put has the module find room for bytes, and writes them there.
func (g guest) put(ctx context.Context, data []byte) (uint32, error) {
	at, err := g.call(ctx, exportMalloc, uint64(len(data)))
	if err != nil {
		return 0, err
	}
	if !g.Write(at, data) {
		return 0, gaveUp("it has no room for %d bytes where it says", len(data))
	}
	return at, nil
}

// text reads what ends with a zero. It is valid until the module runs again.
func (g guest) text(at uint32, most int) ([]byte, error) {
	rest := g.MemorySize() - int(at)
	all, ok := g.Read(at, uint32(max(0, min(rest, most+1))))
	if !ok || rest <= 0 {
		return nil, gaveUp("it has no text where it says")
	}
	end := bytes.IndexByte(all, 0)
	if end < 0 {
		return nil, gaveUp("it wrote a text of more than %d bytes", most)
	}
	return all[:end], nil
}

// eval asks one entry point, and gives its value as JSON.
func (g guest) eval(ctx context.Context, entry int, request []byte, most int) ([]byte, error) {
	input, err := g.put(ctx, request)
	if err != nil {
		return nil, err
	}
	heap, err := g.call(ctx, exportHeap)
	if err != nil {
		return nil, err
	}
	const reserved, noData, asJSON = 0, 0, 0
	at, err := g.call(ctx, exportEval,
		reserved, uint64(entry), noData, uint64(input), uint64(len(request)), uint64(heap), asJSON)
	if err != nil {
		return nil, err
	}
	results, err := g.text(at, most+len(beforeResult)+len(afterResult))
	if err != nil {
		return nil, err
	}
	return onlyResult(results)
}

const beforeResult, afterResult = `[{"result":`, `}]`

// onlyResult takes the value out of OPA's list of results, which has one unless
// the rule is undefined.
func onlyResult(results []byte) ([]byte, error) {
	value, ok := bytes.CutPrefix(results, []byte(beforeResult))
	if !ok {
		return nil, errUndefined
	}
	if value, ok = bytes.CutSuffix(value, []byte(afterResult)); !ok {
		return nil, gaveUp("its results have no end")
	}
	return bytes.Clone(value), nil
}

// builtinNames asks the module which built-ins it leaves to the host, by number.
func (g guest) builtinNames(ctx context.Context) (builtinNames, error) {
	object, err := g.call(ctx, exportBuiltins)
	if err != nil {
		return nil, err
	}
	at, err := g.call(ctx, exportDumpJSON, uint64(object))
	if err != nil {
		return nil, err
	}
	listed, err := g.text(at, longestText)
	if err != nil {
		return nil, err
	}
	var numbers map[string]uint32
	if err := json.Unmarshal(listed, &numbers); err != nil {
		return nil, fmt.Errorf("read the list of built-ins: %w", err)
	}
	names := make(builtinNames, len(numbers))
	for name, number := range numbers {
		names[number] = name
	}
	return names, nil
}

// builtinNames are the built-ins that a module leaves to the host, by the number
// by which it calls them. They reach the host's functions in the context, since
// those are the same functions for all modules.
type builtinNames map[uint32]string

type namesKey struct{}

func (n builtinNames) within(ctx context.Context) context.Context {
	return context.WithValue(ctx, namesKey{}, n)
}

// functions are what a compiled policy imports.
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
				value, err := guest{in}.answer(ctx, names[api.DecodeU32(stack[0])], slices.Clone(stack[2:2+n]))
				stack[0] = uint64(value)
				return err
			},
		})
	}
	return all
}

func addresses(n int) []api.ValueType { return slices.Repeat([]api.ValueType{api.ValueTypeI32}, n) }

// abort is called when an evaluation can't go on: a rule has two values, or there
// is no memory.
func abort(_ context.Context, in *sandbox.Instance, stack []uint64) error {
	message, err := guest{in}.text(api.DecodeU32(stack[0]), longestText)
	if err != nil {
		return err
	}
	if in.Denied() {
		return &sandbox.Stopped{Kind: sandbox.NoMemory, Message: "it needed more memory than its limit"}
	}
	return gaveUp("%s", clarify(string(message)))
}

// ignore is for what only OPA's own developers print.
func ignore(context.Context, *sandbox.Instance, []uint64) error { return nil }

// answer carries out a built-in for the module: its arguments and its answer are
// texts in the module's memory. Zero stands for undefined.
func (g guest) answer(ctx context.Context, name string, args []uint64) (uint32, error) {
	if err := g.Charge(unitsPerCall); err != nil {
		return 0, err
	}
	texts := make([]string, 0, len(args))
	for _, arg := range args {
		at, err := g.call(ctx, exportDump, arg)
		if err != nil {
			return 0, err
		}
		text, err := g.text(at, g.MemorySize())
		if err != nil {
			return 0, err
		}
		if len(text) > mostText {
			return 0, &builtinError{name, fmt.Errorf("its arguments have more than %d bytes", mostText)}
		}
		texts = append(texts, string(text))
	}
	result, err := callBuiltin(ctx, name, texts, g.Charge)
	if err != nil || len(result) == 0 {
		return 0, err
	}
	at, err := g.put(ctx, result)
	if err != nil {
		return 0, err
	}
	value, err := g.call(ctx, exportParse, uint64(at), uint64(len(result)))
	if err == nil && value == 0 {
		err = fmt.Errorf("%s: the module can't read its answer", name)
	}
	return value, err
}
