package attacks

import (
	"context"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/test/attacks/payload"
)

// attackLength is the duration of an attack.
func attackLength() time.Duration {
	switch {
	case *length != 0:
		return *length
	case *long:
		return 45 * time.Second
	default:
		return 4 * time.Second
	}
}

// cleanupContext returns a context for cleanup.
func cleanupContext(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }

// quickPayloads are the payloads of every test run, one for each kind of attack.
// The others take longer, or much memory.
var quickPayloads = map[string]bool{
	"endless-start": true, "endless-call": true, "nested-templates": true, "fill-memory-when-called": true, "rewritten-tables": true,
	"random-loads": true,
}

// forEachMode runs a test in the modes that the flags select.
func forEachMode(t *testing.T, run func(t *testing.T, m mode)) {
	t.Helper()
	for _, m := range []mode{primary, companion} {
		if m == companion && !*long {
			continue
		}
		t.Run(string(m), func(t *testing.T) { run(t, m) })
	}
}

func TestModules_OfATenant_DoNotAffectOthers(t *testing.T) {
	for _, m := range []mode{primary, companion} {
		t.Run(string(m), func(t *testing.T) {
			for _, p := range payload.All() {
				if *long || quickPayloads[p.Name] && m == primary || p.Name == "endless-start" {
					t.Run(p.Name, func(t *testing.T) { runAttack(newEnv(t, m), p) })
				}
			}
		})
	}
}

// Without an attack, the watchdog reports nothing.
func TestWatchdog_ReportsNothing_WithoutAnAttack(t *testing.T) {
	for _, m := range []mode{primary, companion} {
		t.Run(string(m), func(t *testing.T) {
			d := newWatchdog(newEnv(t, m))
			d.observe()
			d.finish()
		})
	}
}

func runAttack(w *env, p payload.Payload) {
	w.Helper()
	d := newWatchdog(w)
	if !w.submitPayload(p) {
		w.Log("the API server refuses the module")
	}
	d.observe()
	d.finish()
}
