package wasm

import (
	"fmt"

	"github.com/tetratelabs/wazero/api"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

const (
	i32 = api.ValueTypeI32
	i64 = api.ValueTypeI64
)

// abi are the functions of the ABI.
func abi() []sandbox.Function {
	return []sandbox.Function{
		define(hostabi.ImportModule, hostabi.ImportRequestRead, requestRead, []api.ValueType{i32, i32}, i32),
		define(hostabi.ImportModule, hostabi.ImportVerdictWrite, verdictWrite, []api.ValueType{i32, i32}),
		define(hostabi.ImportModule, hostabi.ImportLog, writeLog, []api.ValueType{i32, i32, i32}),
	}
}

func define(module, name string, f hostFunction, params []api.ValueType, results ...api.ValueType) sandbox.Function {
	return sandbox.Function{Module: module, Name: name, Params: params, Results: results, Call: f.bind}
}

// requestRead (ptr, limit) → length
func requestRead(g guest, stack []uint64) error {
	at, limit := api.DecodeU32(stack[0]), api.DecodeU32(stack[1])
	if g.request == nil {
		return &guestError{policies.FaultInvalidCall, "it called request_read during initialization, when there is no request"}
	}
	stack[0] = uint64(len(g.request))
	if uint64(len(g.request)) > uint64(limit) {
		return nil
	}
	if err := g.Charge(perByte * int64(len(g.request))); err != nil {
		return err
	}
	if !g.Write(at, g.request) {
		return g.errOutOfBounds("request_read", at, uint32(len(g.request)))
	}
	return nil
}

// verdictWrite (ptr, length)
func verdictWrite(g guest, stack []uint64) error {
	at, length := api.DecodeU32(stack[0]), api.DecodeU32(stack[1])
	switch {
	case g.request == nil:
		return &guestError{policies.FaultInvalidCall, "it called verdict_write during initialization, when there is no request"}
	case g.verdictWritten:
		return &guestError{policies.FaultInvalidCall, "it called verdict_write twice"}
	case length > hostabi.MaxVerdictBytes:
		return &guestError{policies.FaultInvalidVerdict, fmt.Sprintf(
			"its verdict has %d bytes, which exceeds the limit of %d", length, hostabi.MaxVerdictBytes)}
	}
	data, inside, err := g.readText(at, length)
	if err != nil {
		return err
	}
	if !inside {
		return g.errOutOfBounds("verdict_write", at, length)
	}
	g.verdict, g.verdictWritten = append([]byte(nil), data...), true
	return nil
}

// writeLog (level, ptr, length)
func writeLog(g guest, stack []uint64) error {
	level, at, length := api.DecodeU32(stack[0]), api.DecodeU32(stack[1]), api.DecodeU32(stack[2])
	data, inside, err := g.readText(at, length)
	if err != nil {
		return err
	}
	if !inside {
		return g.errOutOfBounds("log", at, length)
	}
	g.log.add(Line{Source: SourceLog, Level: min(hostabi.LogLevel(level), hostabi.LogError)}, data)
	return nil
}
