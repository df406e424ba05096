package wasm

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/tetratelabs/wazero/api"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

const wasiModule = "wasi_snapshot_preview1"

// Error numbers of WASI.
const (
	errnoSuccess      = 0
	errnoBadFile      = 8
	fault             = 21
	errnoInvalid      = 28
	errnoNotSupported = 52
	errnoNotCapable   = 58
	errnoNotSeekable  = 70
)

// wasi returns the functions of WASI preview 1: all of them, since toolchains
// import more than programs need. The functions with an effect come first.
func wasi() []sandbox.Function {
	all := []sandbox.Function{
		define(wasiModule, "args_get", returnSuccess, params("ii"), i32),
		define(wasiModule, "args_sizes_get", returnZeros, params("ii"), i32),
		define(wasiModule, "environ_get", returnSuccess, params("ii"), i32),
		define(wasiModule, "environ_sizes_get", returnZeros, params("ii"), i32),
		define(wasiModule, "clock_res_get", clockResolution, params("ii"), i32),
		define(wasiModule, "clock_time_get", clockTime, params("iIi"), i32),
		define(wasiModule, "random_get", random, params("ii"), i32),
		define(wasiModule, "poll_oneoff", poll, params("iiii"), i32),
		define(wasiModule, "sched_yield", returnSuccess, nil, i32),
		define(wasiModule, "proc_exit", exit, params("i")),
		define(wasiModule, "fd_write", write, params("iiii"), i32),
		define(wasiModule, "fd_read", read, params("iiii"), i32),
		define(wasiModule, "fd_fdstat_get", fileStatus, params("ii"), i32),
	}
	for _, f := range []struct {
		name, params string
		otherwise    uint64
	}{
		{"fd_advise", "iIIi", errnoNotSeekable}, {"fd_allocate", "iII", errnoNotCapable}, {"fd_close", "i", errnoSuccess},
		{"fd_datasync", "i", errnoInvalid}, {"fd_fdstat_set_flags", "ii", errnoSuccess}, {"fd_fdstat_set_rights", "iII", errnoNotCapable},
		{"fd_filestat_get", "ii", errnoNotCapable}, {"fd_filestat_set_size", "iI", errnoInvalid}, {"fd_filestat_set_times", "iIIi", errnoNotCapable},
		{"fd_pread", "iiiIi", errnoNotSeekable}, {"fd_prestat_get", "ii", errnoBadFile}, {"fd_prestat_dir_name", "iii", errnoBadFile},
		{"fd_pwrite", "iiiIi", errnoNotSeekable}, {"fd_readdir", "iiiIi", errnoBadFile}, {"fd_renumber", "ii", errnoNotCapable},
		{"fd_seek", "iIii", errnoNotSeekable}, {"fd_sync", "i", errnoInvalid}, {"fd_tell", "ii", errnoNotSeekable},
		{"path_create_directory", "iii", errnoBadFile}, {"path_filestat_get", "iiiii", errnoBadFile},
		{"path_filestat_set_times", "iiiiIIi", errnoBadFile}, {"path_link", "iiiiiii", errnoBadFile},
		{"path_open", "iiiiiIIii", errnoBadFile}, {"path_readlink", "iiiiii", errnoBadFile}, {"path_remove_directory", "iii", errnoBadFile},
		{"path_rename", "iiiiii", errnoBadFile}, {"path_symlink", "iiiii", errnoBadFile}, {"path_unlink_file", "iii", errnoBadFile},
		{"proc_raise", "i", errnoNotSupported}, {"sock_accept", "iii", errnoBadFile}, {"sock_recv", "iiiiii", errnoBadFile},
		{"sock_send", "iiiii", errnoBadFile}, {"sock_shutdown", "ii", errnoBadFile},
	} {
		all = append(all, define(wasiModule, f.name, returnError(f.otherwise), params(f.params), i32))
	}
	return all
}

// params parses a list of types: i is i32, I is i64.
func params(list string) []api.ValueType {
	var types []api.ValueType
	for _, c := range list {
		types = append(types, map[rune]api.ValueType{'i': i32, 'I': i64}[c])
	}
	return types
}

// returnError returns an error number for the three open files, and "bad file" for
// others.
func returnError(number uint64) hostFunction {
	return func(_ guest, stack []uint64) error {
		if number != errnoNotSupported && !isOpen(stack[0]) {
			return returnErrno(stack, errnoBadFile)
		}
		return returnErrno(stack, number)
	}
}

// File descriptors: standard input, which is empty, and the two outputs.
const (
	stdin  = 0
	stdout = 1
	stderr = 2
)

func isOpen(file uint64) bool { return api.DecodeU32(file) <= stderr }

func returnSuccess(_ guest, stack []uint64) error { return returnErrno(stack, errnoSuccess) }

// returnErrno returns an error number. The stack has room for a result even if a function
// has no parameters.
func returnErrno(stack []uint64, number uint64) error {
	stack[0] = number
	return nil
}

// returnZeros (count ptr, size ptr): there are no arguments and no environment.
func returnZeros(g guest, stack []uint64) error {
	var zero [4]byte
	if !g.Write(api.DecodeU32(stack[0]), zero[:]) || !g.Write(api.DecodeU32(stack[1]), zero[:]) {
		return returnErrno(stack, fault)
	}
	return returnErrno(stack, errnoSuccess)
}

const lastClock = 3 // CPU time of the thread

func clockResolution(g guest, stack []uint64) error {
	if api.DecodeU32(stack[0]) > lastClock {
		return returnErrno(stack, errnoInvalid)
	}
	return g.writeU64(stack, stack[1], 1)
}

// clockTime (clock, precision, ptr): all clocks have the same time.
func clockTime(g guest, stack []uint64) error {
	if api.DecodeU32(stack[0]) > lastClock {
		return returnErrno(stack, errnoInvalid)
	}
	return g.writeU64(stack, stack[2], g.now)
}

func (g guest) writeU64(stack []uint64, at, value uint64) error {
	if !g.Write(api.DecodeU32(at), binary.LittleEndian.AppendUint64(nil, value)) {
		return returnErrno(stack, fault)
	}
	return returnErrno(stack, errnoSuccess)
}

func (g guest) writeU32(stack []uint64, at, value uint64) error {
	if !g.Write(api.DecodeU32(at), binary.LittleEndian.AppendUint32(nil, uint32(value))) {
		return returnErrno(stack, fault)
	}
	return returnErrno(stack, errnoSuccess)
}

// random (ptr, length)
func random(g guest, stack []uint64) error {
	at, length := api.DecodeU32(stack[0]), api.DecodeU32(stack[1])
	if err := g.Charge(perRandom * int64(length)); err != nil {
		return err
	}
	data, inside := g.Read(at, length)
	if !inside {
		return returnErrno(stack, fault)
	}
	_, _ = g.random.Read(data)
	return returnErrno(stack, errnoSuccess)
}

// exit (code): a module must return instead, since its verdict counts only then.
func exit(_ guest, stack []uint64) error {
	return &sandbox.TrapError{Kind: sandbox.Trapped, Message: fmt.Sprintf("it exited with code %d", api.DecodeU32(stack[0]))}
}

// fileStatus (file, ptr): a character device that can be read or written.
func fileStatus(g guest, stack []uint64) error {
	if !isOpen(stack[0]) {
		return returnErrno(stack, errnoBadFile)
	}
	const characterDevice, mayRead, mayWrite = 2, 1 << 1, 1 << 6
	status := make([]byte, 24)
	status[0] = characterDevice
	status[8] = mayWrite
	if api.DecodeU32(stack[0]) == stdin {
		status[8] = mayRead
	}
	if !g.Write(api.DecodeU32(stack[1]), status) {
		return returnErrno(stack, fault)
	}
	return returnErrno(stack, errnoSuccess)
}

// read (file, vectors ptr, vectors, count ptr): standard input is empty.
func read(g guest, stack []uint64) error {
	switch {
	case !isOpen(stack[0]):
		return returnErrno(stack, errnoBadFile)
	case api.DecodeU32(stack[0]) != stdin:
		return returnErrno(stack, errnoNotCapable)
	default:
		return g.writeU32(stack, stack[3], 0)
	}
}

// outputs are the files that can be written.
var outputs = map[uint32]Line{
	stdout: {Source: SourceStdout, Level: hostabi.LogInfo},
	stderr: {Source: SourceStderr, Level: hostabi.LogWarn},
}

// write (file, vectors ptr, vectors, count ptr)
func write(g guest, stack []uint64) error {
	line, ok := outputs[api.DecodeU32(stack[0])]
	if !ok {
		return returnErrno(stack, errnoBadFile)
	}
	const vectorSize = 8
	count := api.DecodeU32(stack[2])
	if err := g.Charge(int64(count) * vectorSize * perByte); err != nil {
		return err
	}
	vectors, inside := g.Read(api.DecodeU32(stack[1]), vectorSize*min(count, math.MaxUint32/vectorSize))
	if !inside {
		return returnErrno(stack, fault)
	}
	total := uint64(0)
	for vector := range slices.Chunk(vectors, vectorSize) {
		data, inside, err := g.readText(binary.LittleEndian.Uint32(vector), binary.LittleEndian.Uint32(vector[4:]))
		if err != nil {
			return err
		}
		if !inside {
			return returnErrno(stack, fault)
		}
		g.log.write(line, data)
		total += uint64(len(data))
	}
	return g.writeU32(stack, stack[3], total)
}
