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
	success  = 0
	badFile  = 8
	fault    = 21
	invalid  = 28
	noSystem = 52
	notAble  = 58
	notSeek  = 70
)

// wasi are the functions of WASI preview 1: all of them, since toolchains import
// more than programs need. Those that have something to work on here come first.
func wasi() []sandbox.Function {
	all := []sandbox.Function{
		define(wasiModule, "args_get", nothing, params("ii"), i32),
		define(wasiModule, "args_sizes_get", noneOf, params("ii"), i32),
		define(wasiModule, "environ_get", nothing, params("ii"), i32),
		define(wasiModule, "environ_sizes_get", noneOf, params("ii"), i32),
		define(wasiModule, "clock_res_get", clockResolution, params("ii"), i32),
		define(wasiModule, "clock_time_get", clockTime, params("iIi"), i32),
		define(wasiModule, "random_get", random, params("ii"), i32),
		define(wasiModule, "poll_oneoff", poll, params("iiii"), i32),
		define(wasiModule, "sched_yield", nothing, nil, i32),
		define(wasiModule, "proc_exit", exit, params("i")),
		define(wasiModule, "fd_write", write, params("iiii"), i32),
		define(wasiModule, "fd_read", read, params("iiii"), i32),
		define(wasiModule, "fd_fdstat_get", fileStatus, params("ii"), i32),
	}
	for _, f := range []struct {
		name, params string
		otherwise    uint64
	}{
		{"fd_advise", "iIIi", notSeek}, {"fd_allocate", "iII", notAble}, {"fd_close", "i", success},
		{"fd_datasync", "i", invalid}, {"fd_fdstat_set_flags", "ii", success}, {"fd_fdstat_set_rights", "iII", notAble},
		{"fd_filestat_get", "ii", notAble}, {"fd_filestat_set_size", "iI", invalid}, {"fd_filestat_set_times", "iIIi", notAble},
		{"fd_pread", "iiiIi", notSeek}, {"fd_prestat_get", "ii", badFile}, {"fd_prestat_dir_name", "iii", badFile},
		{"fd_pwrite", "iiiIi", notSeek}, {"fd_readdir", "iiiIi", badFile}, {"fd_renumber", "ii", notAble},
		{"fd_seek", "iIii", notSeek}, {"fd_sync", "i", invalid}, {"fd_tell", "ii", notSeek},
		{"path_create_directory", "iii", badFile}, {"path_filestat_get", "iiiii", badFile},
		{"path_filestat_set_times", "iiiiIIi", badFile}, {"path_link", "iiiiiii", badFile},
		{"path_open", "iiiiiIIii", badFile}, {"path_readlink", "iiiiii", badFile}, {"path_remove_directory", "iii", badFile},
		{"path_rename", "iiiiii", badFile}, {"path_symlink", "iiiii", badFile}, {"path_unlink_file", "iii", badFile},
		{"proc_raise", "i", noSystem}, {"sock_accept", "iii", badFile}, {"sock_recv", "iiiiii", badFile},
		{"sock_send", "iiiii", badFile}, {"sock_shutdown", "ii", badFile},
	} {
		all = append(all, define(wasiModule, f.name, refuse(f.otherwise), params(f.params), i32))
	}
	return all
}

// params reads a list of types: i is i32, I is i64.
func params(list string) []api.ValueType {
	var types []api.ValueType
	for _, c := range list {
		types = append(types, map[rune]api.ValueType{'i': i32, 'I': i64}[c])
	}
	return types
}

// refuse gives one number for the three files that there are, and says of any
// other that it is not open.
func refuse(number uint64) hostFunction {
	return func(_ guest, stack []uint64) error {
		if number != noSystem && !isOpen(stack[0]) {
			return give(stack, badFile)
		}
		return give(stack, number)
	}
}

// Files are standard input, which is empty, and the two outputs.
const (
	stdin  = 0
	stdout = 1
	stderr = 2
)

func isOpen(file uint64) bool { return api.DecodeU32(file) <= stderr }

func nothing(_ guest, stack []uint64) error { return give(stack, success) }

// give returns an error number. Some functions have no parameters, and room on
// the stack for their result all the same.
func give(stack []uint64, number uint64) error {
	stack[0] = number
	return nil
}

// noneOf (count ptr, size ptr): there are no arguments and no environment.
func noneOf(g guest, stack []uint64) error {
	var zero [4]byte
	if !g.Write(api.DecodeU32(stack[0]), zero[:]) || !g.Write(api.DecodeU32(stack[1]), zero[:]) {
		return give(stack, fault)
	}
	return give(stack, success)
}

const lastClock = 3 // of the thread's processor time

func clockResolution(g guest, stack []uint64) error {
	if api.DecodeU32(stack[0]) > lastClock {
		return give(stack, invalid)
	}
	return g.giveU64(stack, stack[1], 1)
}

// clockTime (clock, precision, ptr): all clocks show the same.
func clockTime(g guest, stack []uint64) error {
	if api.DecodeU32(stack[0]) > lastClock {
		return give(stack, invalid)
	}
	return g.giveU64(stack, stack[2], g.now)
}

func (g guest) giveU64(stack []uint64, at, value uint64) error {
	if !g.Write(api.DecodeU32(at), binary.LittleEndian.AppendUint64(nil, value)) {
		return give(stack, fault)
	}
	return give(stack, success)
}

func (g guest) giveU32(stack []uint64, at, value uint64) error {
	if !g.Write(api.DecodeU32(at), binary.LittleEndian.AppendUint32(nil, uint32(value))) {
		return give(stack, fault)
	}
	return give(stack, success)
}

// random (ptr, length)
func random(g guest, stack []uint64) error {
	at, length := api.DecodeU32(stack[0]), api.DecodeU32(stack[1])
	if err := g.Charge(perRandom * int64(length)); err != nil {
		return err
	}
	data, inside := g.Read(at, length)
	if !inside {
		return give(stack, fault)
	}
	_, _ = g.random.Read(data)
	return give(stack, success)
}

// exit (code): the module is to return, since what it wrote counts when it does.
func exit(_ guest, stack []uint64) error {
	return &sandbox.Stopped{Kind: sandbox.Trapped, Message: fmt.Sprintf("it exited with code %d", api.DecodeU32(stack[0]))}
}

// fileStatus (file, ptr): a character device that can be read or written.
func fileStatus(g guest, stack []uint64) error {
	if !isOpen(stack[0]) {
		return give(stack, badFile)
	}
	const characterDevice, mayRead, mayWrite = 2, 1 << 1, 1 << 6
	status := make([]byte, 24)
	status[0] = characterDevice
	status[8] = mayWrite
	if api.DecodeU32(stack[0]) == stdin {
		status[8] = mayRead
	}
	if !g.Write(api.DecodeU32(stack[1]), status) {
		return give(stack, fault)
	}
	return give(stack, success)
}

// read (file, vectors ptr, vectors, count ptr): standard input is at its end.
func read(g guest, stack []uint64) error {
	switch {
	case !isOpen(stack[0]):
		return give(stack, badFile)
	case api.DecodeU32(stack[0]) != stdin:
		return give(stack, notAble)
	default:
		return g.giveU32(stack, stack[3], 0)
	}
}

// outputs are the files that can be written to.
var outputs = map[uint32]Line{
	stdout: {Source: SourceStdout, Level: hostabi.LogInfo},
	stderr: {Source: SourceStderr, Level: hostabi.LogWarn},
}

// write (file, vectors ptr, vectors, count ptr)
func write(g guest, stack []uint64) error {
	line, ok := outputs[api.DecodeU32(stack[0])]
	if !ok {
		return give(stack, badFile)
	}
	const vectorSize = 8
	count := api.DecodeU32(stack[2])
	if err := g.Charge(int64(count) * vectorSize * perByte); err != nil {
		return err
	}
	vectors, inside := g.Read(api.DecodeU32(stack[1]), vectorSize*min(count, math.MaxUint32/vectorSize))
	if !inside {
		return give(stack, fault)
	}
	total := uint64(0)
	for vector := range slices.Chunk(vectors, vectorSize) {
		data, inside, err := g.text(binary.LittleEndian.Uint32(vector), binary.LittleEndian.Uint32(vector[4:]))
		if err != nil {
			return err
		}
		if !inside {
			return give(stack, fault)
		}
		g.log.write(line, data)
		total += uint64(len(data))
	}
	return g.giveU32(stack, stack[3], total)
}
