package run

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/gleaner-dev/gleaner/policies/worker"
)

// sandboxOptions are the flags of run for sandbox workers, the processes in which modules run.
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
		"maximum number of sandbox workers that evaluate cluster-scoped modules, and the same number for namespaced ones; one more of each compiles modules")
	flags.StringVar(&o.sandboxMemory, "sandbox-memory", o.sandboxMemory,
		"maximum resident memory of each sandbox worker, as a `quantity`; all workers and the operator must fit into the container's memory limit")
	flags.DurationVar(&o.compileTimeout, "module-compile-timeout", o.compileTimeout, "maximum time to compile a module")
}

// config parses the flags.
func (o *sandboxOptions) sandboxConfig() (worker.Config, error) {
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

// memoryMax contains the memory limit of a container with cgroup v2.
const memoryMax = "/sys/fs/cgroup/memory.max"

// warnMemoryLimit logs if sandbox workers may use more memory than the container's limit allows:
// with cgroup v2, the kernel then kills the operator with them.
func warnMemoryLimit(log logr.Logger, c worker.Config) {
	text, err := os.ReadFile(memoryMax)
	if err != nil {
		return
	}
	limit, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
	if err != nil || c.TotalMemory() <= limit*3/4 {
		return // no limit, or enough memory
	}
	log.Info("Sandbox workers may exceed the memory limit of the container; raise the limit, or lower --sandbox-memory or --sandbox-workers",
		"limit", resource.NewQuantity(limit, resource.BinarySI), "workers", resource.NewQuantity(c.TotalMemory(), resource.BinarySI))
}
