package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/gleaner-dev/gleaner/devcluster/gobuild"
	"github.com/gleaner-dev/gleaner/devcluster/s3server"
)

// builds are what the demo's last acts need. They are built one after the other
// while the acts before them are shown.
type builds struct {
	folder   string
	keepData *guest
	storage  *build
	bucket   *guest
	cancel   context.CancelFunc
	tasks    chan struct{} // receives once builds may begin; closed by stop
	ended    chan struct{}
}

// newBuilds prepares the builds. Nothing is built before begin, nor after stop.
func newBuilds(ctx context.Context) (*builds, error) {
	folder, err := os.MkdirTemp("", "gleaner-demo-")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	b := &builds{
		folder:   folder,
		keepData: newGuest("keep-data", filepath.Join("sdk", "go"), "./examples/keep-data", folder),
		storage:  newBuild(func(ctx context.Context, progress io.Writer) error { return ignore(s3server.Build(ctx, progress)) }),
		bucket:   newGuest("bucket-finalizer", bucketExample, ".", folder),
		cancel:   cancel,
		tasks:    make(chan struct{}, 1),
		ended:    make(chan struct{}),
	}
	go b.run(ctx)
	return b, nil
}

func ignore(_ string, err error) error { return err }

func (b *builds) run(ctx context.Context) {
	defer close(b.ended)
	<-b.tasks
	for _, task := range []*build{b.keepData.build, b.storage, b.bucket.build} {
		task.err = ctx.Err()
		if task.err == nil {
			task.err = task.run(ctx, &task.gate)
		}
		close(task.done)
	}
}

// begin starts the first build.
func (b *builds) begin() { b.tasks <- struct{}{} }

// stop ends the build under way, and removes what was built.
func (b *builds) stop() {
	b.cancel()
	close(b.tasks)
	<-b.ended
	_ = os.RemoveAll(b.folder)
}

// build is one of them.
type build struct {
	run  func(ctx context.Context, progress io.Writer) error
	gate gate
	done chan struct{}
	err  error // once done is closed
}

func newBuild(run func(context.Context, io.Writer) error) *build {
	return &build{run: run, done: make(chan struct{})}
}

// wait waits for the end of the build, and shows its progress meanwhile.
func (b *build) wait(ctx context.Context, out io.Writer) error {
	b.gate.open(out)
	defer b.gate.open(nil)
	select {
	case <-b.done:
		return b.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// gate drops what is written to it while it is not open.
type gate struct {
	mu  sync.Mutex
	out io.Writer
}

func (g *gate) open(out io.Writer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out = out
}

func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.out == nil {
		return len(p), nil
	}
	return g.out.Write(p)
}

// guest is a module in Go.
type guest struct {
	*build
	folder, what string
	file         string // that is built
}

func newGuest(name, folder, what, out string) *guest {
	g := &guest{folder: folder, what: what, file: filepath.Join(out, name+".wasm")}
	g.build = newBuild(func(ctx context.Context, progress io.Writer) error {
		return gobuild.Run(ctx, gobuild.Build{
			Label: "module", Name: name, Dir: folder, Packages: []string{what}, Flags: guestFlags, Output: g.file,
			Env: []string{"GOOS=wasip1", "GOARCH=wasm"},
		}, progress)
	})
	return g
}

// Without inlining a module is a tenth smaller, and fits into a ConfigMap.
var guestFlags = []string{"-buildmode=c-shared", "-gcflags=all=-l", "-ldflags=-s -w"}

// String is the command that builds it.
func (g *guest) String() string {
	return fmt.Sprintf("cd %s && GOOS=wasip1 GOARCH=wasm go build -trimpath -o %s '%s' %s", g.folder, g.file, strings.Join(guestFlags, "' '"), g.what)
}
