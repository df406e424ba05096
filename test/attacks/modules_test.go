package attacks

import (
	"context"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/test/attacks/payload"
)

// attackLength is how long others are watched during an attack.
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

// contextOf returns a context for what is done after a test.
func contextOf(t *testing.T) context.Context { return context.WithoutCancel(t.Context()) }

// quick are the payloads that every run of the tests submits, one for each kind of harm.
// The others take longer, or much memory.
var quick = map[string]bool{
	"endless-start": true, "endless-call": true, "nested-templates": true, "fill-memory-when-called": true, "rewritten-tables": true,
	"random-loads": true,
}

// each runs a test in the modes, on what the flags ask for.
func each(t *testing.T, run func(t *testing.T, m mode)) {
	t.Helper()
	for _, m := range []mode{primary, companion} {
		if m == companion && !*long {
			continue
		}
		t.Run(string(m), func(t *testing.T) { run(t, m) })
	}
}

func TestModules_OfATenantHarmNobodyElse(t *testing.T) {
	for _, m := range []mode{primary, companion} {
		t.Run(string(m), func(t *testing.T) {
			for _, p := range payload.All() {
				if *long || quick[p.Name] && m == primary || p.Name == "endless-start" {
					t.Run(p.Name, func(t *testing.T) { attackWith(newWorld(t, m), p) })
				}
			}
		})
	}
}

// Nothing of what is checked is wrong where there is no attack.
func TestWatchdog_FindsNothingWithoutAnAttack(t *testing.T) {
	for _, m := range []mode{primary, companion} {
		t.Run(string(m), func(t *testing.T) {
			d := newWatchdog(newWorld(t, m))
			d.observe()
			d.end()
		})
	}
}

func attackWith(w *world, p payload.Payload) {
	w.Helper()
	d := newWatchdog(w)
	if !w.submit(p) {
		w.Log("the API server does not take the module, so that there is nothing to watch")
	}
	d.observe()
	d.end()
}
