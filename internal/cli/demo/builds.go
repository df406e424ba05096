package demo

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

// builds are the builds for the last steps of the demo. They run one after the other while the
// steps before are shown.
type builds struct {
	dir      string
	keepData *goModule
	storage  *build
	bucket   *goModule
	cancel   context.CancelFunc
	tasks    chan struct{} // receives when builds may start; closed by stop
	ended    chan struct{}
}

// newBuilds prepares the builds. They run only between begin and stop.
func newBuilds(ctx context.Context) (*builds, error) {
	dir, err := os.MkdirTemp("", "gleaner-demo-")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	b := &builds{
		dir:      dir,
		keepData: newGoModule("keep-data", filepath.Join("sdk", "go"), "./examples/keep-data", dir),
		storage:  newBuild(func(ctx context.Context, progress io.Writer) error { return dropResult(s3server.Build(ctx, progress)) }),
		bucket:   newGoModule("bucket-finalizer", bucketExample, ".", dir),
		cancel:   cancel,
		tasks:    make(chan struct{}, 1),
		ended:    make(chan struct{}),
	}
	go b.run(ctx)
	return b, nil
}

func dropResult(_ string, err error) error { return err }

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

// start starts the first build.
func (b *builds) start() { b.tasks <- struct{}{} }

// stop cancels the current build, and removes the results.
func (b *builds) stop() {
	b.cancel()
	close(b.tasks)
	<-b.ended
	_ = os.RemoveAll(b.dir)
}

// build is one build.
type build struct {
	run  func(ctx context.Context, progress io.Writer) error
	gate gate
	done chan struct{}
	err  error // valid after done is closed
}

func newBuild(run func(context.Context, io.Writer) error) *build {
	return &build{run: run, done: make(chan struct{})}
}

// wait waits for the build to complete, and shows its progress meanwhile.
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

// gate discards output while it is closed.
type gate struct {
	mu  sync.Mutex
	out io.Writer
}

func (g *gate) open(out io.Writer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.out = out
}

// Write implements io.Writer.
func (g *gate) Write(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.out == nil {
		return len(p), nil
	}
	return g.out.Write(p)
}

// goModule is the build of a Go module.
type goModule struct {
	*build
	dir, what string
	file      string // result
}

func newGoModule(name, dir, what, out string) *goModule {
	g := &goModule{dir: dir, what: what, file: filepath.Join(out, name+".wasm")}
	g.build = newBuild(func(ctx context.Context, progress io.Writer) error {
		return gobuild.Run(ctx, gobuild.Build{
			Label: "module", Name: name, Dir: dir, Packages: []string{what}, Flags: goModuleFlags, Output: g.file,
			Env: []string{"GOOS=wasip1", "GOARCH=wasm"},
		}, progress)
	})
	return g
}

// Without inlining a module is a tenth smaller, and fits into a ConfigMap.
var goModuleFlags = []string{"-buildmode=c-shared", "-gcflags=all=-l", "-ldflags=-s -w"}

// String returns the build command.
func (g *goModule) String() string {
	return fmt.Sprintf("cd %s && GOOS=wasip1 GOARCH=wasm go build -trimpath -o %s '%s' %s", g.dir, g.file, strings.Join(goModuleFlags, "' '"), g.what)
}
