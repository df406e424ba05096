package worker

import (
	"syscall"
	"testing"

	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

func TestWorkers_HaveALowerPriority_UnlessItIsKept(t *testing.T) {
	for name, c := range map[string]struct {
		config    Config
		namespace string
		want      int
	}{
		"namespaced":        {Config{}, "shop", niceNamespace},
		"cluster-scoped":    {Config{}, "", niceCluster},
		"with KeepPriority": {Config{KeepPriority: true}, "shop", 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPool(t, c.config)
			start(t, p, regoSource(c.namespace, "keep", keepLabeled), sandbox.Limits{})
			g := p.running[scopeOf(c.namespace)]
			g.lock.Lock()
			defer g.lock.Unlock()
			for _, w := range g.idle {
				raw, err := syscall.Getpriority(syscall.PRIO_PROCESS, w.pid)
				own, err2 := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
				if err != nil || err2 != nil {
					t.Fatal(err, err2)
				}
				if nice := own - raw; nice != c.want { // the kernel returns 20 minus the niceness
					t.Errorf("niceness is %d above this process's, want %d", nice, c.want)
				}
			}
			if len(g.idle) == 0 {
				t.Error("no worker was started")
			}
		})
	}
}
