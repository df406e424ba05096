package module

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

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/loader"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

const maxCalls = 1_000_000

func moduleBench() *cobra.Command {
	var limits sandbox.Limits
	var file string
	calls := 1000
	cmd := &cobra.Command{
		Use:   "bench FILE...",
		Short: "Measure the fuel, memory and time of a module call",
		Long: "Measure the fuel, memory and time of a module call. The same request is evaluated repeatedly, by\n" +
			"default an example request for its first hook.",
		Example: `  gleaner module bench module.wasm.gz
  gleaner module bench policy.rego --request request.json -n 10000`,
		Args: requireModule,
		RunE: func(cmd *cobra.Command, args []string) error {
			if calls < 1 || calls > maxCalls {
				return exit.AsUsage(fmt.Errorf("--calls=%d: use a number from 1 to %d", calls, maxCalls))
			}
			m, err := load(cmd.Context(), limits, args)
			if err != nil {
				return err
			}
			defer m.Close()
			r, err := benchRequest(m, file)
			if err != nil {
				return err
			}
			return bench(cmd.Context(), m, cmd.OutOrStdout(), r, calls)
		},
	}
	loader.AddLimitFlags(cmd.Flags(), &limits)
	cmd.Flags().StringVar(&file, "request", "", "`file` with the request, a JSON document of the ABI")
	cmd.Flags().IntVarP(&calls, "calls", "n", calls, "`number` of calls")
	return cmd
}

// benchRequest returns the request in the file, or an example for the first hook.
func benchRequest(m *loader.Module, file string) (hostabi.Request, error) {
	if file == "" {
		for _, hook := range m.Facts.Hooks {
			if hook != hostabi.HookValidate {
				return sampleRequest(hook), nil
			}
		}
		return hostabi.Request{}, errNoHook
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return hostabi.Request{}, fmt.Errorf("read request: %w", err)
	}
	var r hostabi.Request
	if err := json.Unmarshal(data, &r); err != nil {
		return hostabi.Request{}, fmt.Errorf("read request: %s: %w", file, err)
	}
	if !slices.Contains(m.Facts.Hooks, r.Hook) {
		return hostabi.Request{}, fmt.Errorf("the request in %s is for the hook %q, but the module has %q", file, r.Hook, m.Facts.Hooks)
	}
	return r, nil
}

// bench evaluates a request repeatedly, and checks that the fuel is always the same: anything
// else is a bug in the sandbox.
func bench(ctx context.Context, m *loader.Module, to io.Writer, r hostabi.Request, calls int) error {
	first, err := m.Evaluate(ctx, r)
	if err != nil {
		return err
	}
	took, restored := make([]time.Duration, 0, calls), 0
	for range calls {
		a, err := m.Evaluate(ctx, r)
		if err != nil {
			return err
		}
		if a.Usage.Fuel != first.Usage.Fuel {
			return fmt.Errorf("the same request used %d and %d units of fuel: please report this bug, with the module", first.Usage.Fuel, a.Usage.Fuel)
		}
		took = append(took, a.Usage.Elapsed)
		if a.Usage.Restored {
			restored++
		}
	}
	slices.Sort(took)
	verdict, err := json.Marshal(first.Verdict)
	if err != nil {
		return fmt.Errorf("encode verdict: %w", err)
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	printer.Fprintf(w, "hook\t%s\n", r.Hook)
	printer.Fprintf(w, "verdict\t%s\n", verdict)
	printer.Fprintf(w, "compiled in\t%s\n", m.Facts.Compiled.Round(time.Millisecond))
	printer.Fprintf(w, "first call\t%s\n", first.Usage.Elapsed)
	printer.Fprintf(w, "%d calls\tp50 %s, p99 %s\n", calls, took[len(took)/2], took[len(took)*99/100])
	printer.Fprintf(w, "fuel\t%d units for each call\n", first.Usage.Fuel)
	printer.Fprintf(w, "memory\t%d bytes\n", first.Usage.Memory)
	printer.Fprintf(w, "instances\t%d of %d calls reused an instance\n", restored, calls)
	return w.Flush()
}
