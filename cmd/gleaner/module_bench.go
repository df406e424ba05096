package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

const mostCalls = 1_000_000

func moduleBench() *cobra.Command {
	var limits sandbox.Limits
	var file string
	calls := 1000
	cmd := &cobra.Command{
		Use:   "bench FILE...",
		Short: "Measure what a call of a module takes",
		Long: "Measure what a call of a module takes: fuel, memory and time. It is asked the same over and over, by\n" +
			"default a made-up request for its first hook.",
		Example: `  gleaner module bench module.wasm.gz
  gleaner module bench policy.rego --request request.json -n 10000`,
		Args: someModule,
		RunE: func(cmd *cobra.Command, args []string) error {
			if calls < 1 || calls > mostCalls {
				return usageError{fmt.Errorf("--calls=%d: use a number from 1 to %d", calls, mostCalls)}
			}
			if err := checkLimits(limits); err != nil {
				return err
			}
			m, err := loadModule(cmd.Context(), limits, args)
			if err != nil {
				return err
			}
			defer m.close()
			r, err := m.request(file)
			if err != nil {
				return err
			}
			return m.bench(cmd.Context(), cmd.OutOrStdout(), r, calls)
		},
	}
	limitFlags(cmd.Flags(), &limits)
	cmd.Flags().StringVar(&file, "request", "", "`file` with the request to ask, a JSON document of the ABI")
	cmd.Flags().IntVarP(&calls, "calls", "n", calls, "how often to ask")
	return cmd
}

// request is what to ask: the file's, or one for the first hook.
func (m *loaded) request(file string) (hostabi.Request, error) {
	if file == "" {
		for _, hook := range m.facts.Hooks {
			if hook != hostabi.HookValidate {
				return sampleRequest(hook), nil
			}
		}
		return hostabi.Request{}, errNoHookToAsk
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return hostabi.Request{}, fmt.Errorf("read request: %w", err)
	}
	var r hostabi.Request
	if err := json.Unmarshal(data, &r); err != nil {
		return hostabi.Request{}, fmt.Errorf("read request: %s: %w", file, err)
	}
	if !slices.Contains(m.facts.Hooks, r.Hook) {
		return hostabi.Request{}, fmt.Errorf("the request in %s is for the hook %q, and the module answers %q", file, r.Hook, m.facts.Hooks)
	}
	return r, nil
}

// bench asks over and over. A module that does not give the same answer for the
// same fuel would be a fault of the sandbox, so it is looked at.
func (m *loaded) bench(ctx context.Context, to io.Writer, r hostabi.Request, calls int) error {
	first, err := m.ask(ctx, r)
	if err != nil {
		return err
	}
	took, restored := make([]time.Duration, 0, calls), 0
	for range calls {
		a, err := m.ask(ctx, r)
		if err != nil {
			return err
		}
		if a.usage.Fuel != first.usage.Fuel {
			return fmt.Errorf("the same request took %d and %d units of fuel: please report this, with the module", first.usage.Fuel, a.usage.Fuel)
		}
		took = append(took, a.usage.Elapsed)
		if a.usage.Restored {
			restored++
		}
	}
	slices.Sort(took)
	verdict, err := json.Marshal(first.verdict)
	if err != nil {
		return fmt.Errorf("show verdict: %w", err)
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	kubectl.Fprintf(w, "hook\t%s\n", r.Hook)
	kubectl.Fprintf(w, "verdict\t%s\n", verdict)
	kubectl.Fprintf(w, "compiled in\t%s\n", m.facts.Compiled.Round(time.Millisecond))
	kubectl.Fprintf(w, "first call\t%s\n", first.usage.Elapsed)
	kubectl.Fprintf(w, "%d calls\tp50 %s, p99 %s\n", calls, took[len(took)/2], took[len(took)*99/100])
	kubectl.Fprintf(w, "fuel\t%d units, the same each time\n", first.usage.Fuel)
	kubectl.Fprintf(w, "memory\t%d bytes\n", first.usage.Memory)
	kubectl.Fprintf(w, "instances\t%d of %d calls found one to be restored, others a fresh one\n", restored, calls)
	return w.Flush()
}
