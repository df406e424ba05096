package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/policies/worker"
	"github.com/gleaner-dev/gleaner/policies/worker/serve"
)

// sandboxCommand is what "gleaner run" starts for modules to be compiled and evaluated in.
func sandboxCommand() *cobra.Command {
	return &cobra.Command{
		Use:                serve.Command,
		Short:              "Compile and evaluate modules for an operator, which starts this command itself",
		Hidden:             true,
		DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if code := serve.Main(args); code != 0 {
				return kubectl.Exit{Code: code}
			}
			return nil
		},
	}
}

// sandboxOptions are the flags of run about the processes in which modules run.
type sandboxOptions struct {
	sandboxWorkers int
	sandboxMemory  string
	compileTimeout time.Duration
}

func defaultSandboxOptions() sandboxOptions {
	return sandboxOptions{
		sandboxWorkers: worker.DefaultWorkers,
		sandboxMemory:  resource.NewQuantity(worker.DefaultMemory, resource.BinarySI).String(),
		compileTimeout: worker.DefaultCompileTimeout,
	}
}

func (o *sandboxOptions) addTo(flags *pflag.FlagSet) {
	flags.IntVar(&o.sandboxWorkers, "sandbox-workers", o.sandboxWorkers,
		"maximum number of processes that evaluate modules of the cluster, and again of those that evaluate modules of namespaces; one more of each compiles")
	flags.StringVar(&o.sandboxMemory, "sandbox-memory", o.sandboxMemory,
		"maximum resident memory of each of these processes, as a `quantity`; all of them together must fit into the container beside the operator")
	flags.DurationVar(&o.compileTimeout, "module-compile-timeout", o.compileTimeout, "maximum time that a module may take to compile")
}

// config is what the flags say.
func (o *sandboxOptions) config() (worker.Config, error) {
	memory, err := resource.ParseQuantity(o.sandboxMemory)
	if err != nil {
		return worker.Config{}, fmt.Errorf("--sandbox-memory=%s: use a quantity such as 192Mi", o.sandboxMemory)
	}
	c := worker.Config{Workers: o.sandboxWorkers, Memory: memory.Value(), CompileTimeout: o.compileTimeout}
	if c.Workers < 1 || c.Workers > 64 {
		return c, fmt.Errorf("--sandbox-workers=%d: use a number from 1 to 64", c.Workers)
	}
	if c.CompileTimeout < time.Second {
		return c, fmt.Errorf("--module-compile-timeout=%s: use 1s or more", c.CompileTimeout)
	}
	if err := c.Validate(); err != nil {
		return c, fmt.Errorf("--sandbox-memory=%s: %w", o.sandboxMemory, err)
	}
	return c, nil
}

// memoryMax is where a container with cgroup v2 finds its limit of memory.
const memoryMax = "/sys/fs/cgroup/memory.max"

// warnOfMemory logs if workers may take more memory than the container leaves them: with
// cgroup v2, the kernel then ends the operator along with them.
func warnOfMemory(log logr.Logger, c worker.Config) {
	text, err := os.ReadFile(memoryMax)
	if err != nil {
		return
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || c.TotalMemory() <= limit*3/4 {
		return // there is no limit, or there is room
	}
	log.Info("Sandbox workers may use up the memory of the container: raise its limit, or lower --sandbox-memory or --sandbox-workers",
		"limit", resource.NewQuantity(limit, resource.BinarySI), "workers", resource.NewQuantity(c.TotalMemory(), resource.BinarySI))
}
