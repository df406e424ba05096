package serve

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/debug"

	"github.com/gleaner-dev/gleaner/policies/rego"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
	"github.com/gleaner-dev/gleaner/policies/worker/confine"
	"github.com/gleaner-dev/gleaner/policies/worker/wire"
)

// Command is the argument by which a program is asked to be a worker. What follows are
// Flags.
const Command = "sandbox"

// connection is the file that the operator passes.
const connection = 3

// errNoOperator is a worker that was started by hand.
var errNoOperator = errors.New("there is no operator on file 3: workers are started by \"gleaner run\", not by hand")

// MainIfRequested is Main if this process was started to be a worker, and ends with it. Programs
// other than gleaner that start workers call it before anything else, as tests do in TestMain.
func MainIfRequested() {
	if len(os.Args) > 1 && os.Args[1] == Command && isSocket(connection) {
		os.Exit(Main(os.Args[2:]))
	}
}

// Main is the whole life of a worker. It returns the exit code.
func Main(args []string) int {
	if err := run(args); err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		return 1
	}
	return 0
}

func run(args []string) error {
	flags := flag.NewFlagSet(Command, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	cacheDir := flags.String("cache-dir", "", "")
	nice := flags.Int("nice", 0, "")
	memory := flags.Int64("memory", 0, "")
	procs := flags.Int("procs", 1, "")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !isSocket(connection) {
		return errNoOperator
	}
	runtime.GOMAXPROCS(*procs)
	if *memory > 0 {
		debug.SetMemoryLimit(*memory * 3 / 4) // collects garbage before the operator has to kill it
	}
	conn := os.NewFile(connection, "operator")
	sandbox.Prepare()
	rego.Prepare()
	active := confine.Apply(confine.Options{CacheDir: *cacheDir, Nice: *nice})
	server, err := New(*cacheDir)
	if err != nil {
		return err
	}
	hello := wire.Reply{Outcome: wire.Done, Imports: active}
	if _, err := wire.Write(conn, 0, &hello, nil); err != nil {
		return fmt.Errorf("greet the operator: %w", err)
	}
	return server.Serve(context.Background(), conn)
}
