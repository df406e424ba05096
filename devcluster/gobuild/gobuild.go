// Package gobuild runs "go build" and reports how far it is.
//
// All programs are built with the same settings, so that a package that two of
// them import is compiled once: the programs of a control plane and Gleaner
// have more than a thousand packages in common. It uses nothing but the
// standard library, since it is itself compiled before the first line of progress.
package gobuild

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"time"
)

const (
	interval       = 5 * time.Second        // between two lines of progress
	cpuPerPackage  = 200 * time.Millisecond // of CPU time, on average, measured
	minPackages    = 50                     // packages below which no estimate is given
	errorTailLines = 20
)

// Build is one run of "go build".
type Build struct {
	Label    string   // at the beginning of every line
	Name     string   // what is built, for people
	Dir      string   // of the module; empty means the working directory
	Packages []string // main packages
	Flags    []string // besides -trimpath and -o
	Output   string   // a file, or an existing folder for several programs
	Env      []string // comes last
}

// Run builds. Progress gets a line at once and another one at least every five
// seconds. The error holds the end of what the go command printed.
func Run(ctx context.Context, b Build, progress io.Writer) error {
	r := runner{Build: b, progress: progress, began: time.Now(), ticks: interval}
	r.logf("building %s", b.Name)
	stale, err := r.stale(ctx)
	if err != nil {
		return err
	}
	if len(stale) >= minPackages {
		r.logf("%s packages to compile: %s, if nothing else keeps %s busy", formatThousands(len(stale)), estimate(len(stale)), cores())
	}
	if err := r.compile(ctx, stale); err != nil {
		return err
	}
	r.logf("built %s in %s", b.Name, r.since())
	return nil
}

// runner is a Build under way.
type runner struct {
	Build
	progress io.Writer
	began    time.Time
	ticks    time.Duration
}

// stale are the packages that the build cache does not have.
func (r *runner) stale(ctx context.Context) (map[string]bool, error) {
	const available = "available in build cache" // of programs, which are linked each time
	format := `{{if .Stale}}{{.ImportPath}}	{{.StaleReason}}{{end}}`
	args := append([]string{"list", "-deps", "-trimpath", "-f", format}, r.Flags...)
	var found bytes.Buffer
	var log meter
	if err := r.run(ctx, append(args, r.Packages...), &found, &log, log.loading); err != nil {
		return nil, err
	}
	stale := map[string]bool{}
	for line := range strings.Lines(found.String()) {
		path, reason, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if path != "" && !strings.Contains(reason, available) {
			stale[path] = true
		}
	}
	return stale, nil
}

func (r *runner) compile(ctx context.Context, stale map[string]bool) error {
	args := append([]string{"build", "-v", "-trimpath", "-o", r.Output}, r.Flags...)
	log := meter{pending: stale, total: len(stale)}
	return r.run(ctx, append(args, r.Packages...), nil, &log, log.compiling)
}

// run runs the go command, and reports its state as long as it does.
func (r *runner) run(ctx context.Context, args []string, out io.Writer, log *meter, state func() string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.Dir, Environment(r.Env...), out, log
	done := make(chan error, 1)
	go func() { done <- cmd.Run() }()
	ticker := time.NewTicker(r.ticks)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			r.logf("%s (%s)", state(), r.since())
		case err := <-done:
			if err != nil {
				return fmt.Errorf("build %s: %w\n%s", r.Name, errors.Join(ctx.Err(), err), log.tail(errorTailLines))
			}
			return nil
		}
	}
}

func (r *runner) logf(format string, args ...any) {
	fmt.Fprintf(r.progress, r.Label+": "+format+"\n", args...)
}

func (r *runner) since() time.Duration { return time.Since(r.began).Round(100 * time.Millisecond) }

// Environment is the environment of a build: that of this process, with the
// settings that make a package's compiled form the same for every program.
// Variables that are given come last, and win.
func Environment(more ...string) []string {
	env := append(os.Environ(), "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
	if os.Getenv("GOGC") == "" && os.Getenv("GOMEMLIMIT") == "" {
		env = append(env, gcSettings()...)
	}
	return append(env, more...)
}

// gcSettings are the settings of the compiler's own garbage collector. The compiler
// runs once for each package, and most of those are done before garbage is worth
// collecting: without that, it needs a third less CPU time. Only where memory is
// known to suffice for as many compilers as there are cores.
func gcSettings() []string {
	const limit = 1 << 30
	if available, ok := availableMemory(); ok && available < uint64(limit*runtime.GOMAXPROCS(0)) {
		return []string{"GOGC=200"}
	} else if !ok {
		return []string{"GOGC=400"}
	}
	return []string{"GOGC=off", fmt.Sprintf("GOMEMLIMIT=%d", limit)}
}

// availableMemory is in bytes, and known on Linux only.
func availableMemory() (uint64, bool) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	return availableIn(string(text))
}

func availableIn(meminfo string) (uint64, bool) {
	for line := range strings.Lines(meminfo) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "MemAvailable:" && fields[2] == "kB" {
			kilobytes, err := strconv.ParseUint(fields[1], 10, 64)
			return kilobytes << 10, err == nil
		}
	}
	return 0, false
}

// estimate is about how long it takes to compile this many packages.
func estimate(packages int) string {
	took := time.Duration(packages) * cpuPerPackage / time.Duration(runtime.GOMAXPROCS(0))
	switch {
	case took < time.Minute:
		return "less than a minute"
	case took < 90*time.Second:
		return "about a minute"
	default:
		return fmt.Sprintf("about %d minutes", int(took.Round(time.Minute).Minutes()))
	}
}

func cores() string {
	if n := runtime.GOMAXPROCS(0); n > 1 {
		return fmt.Sprintf("the %d cores", n)
	}
	return "the only core"
}
