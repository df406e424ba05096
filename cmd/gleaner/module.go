package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/wasm"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

func moduleCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "module",
		Short: "Write modules, and look at them before a cluster does",
		Long: "Write modules, and look at them before a cluster does. A module is a file of WebAssembly, plain or\n" +
			"compressed with gzip, or a file, several files or a folder of Rego. It is taken in and run just as the\n" +
			"operator does it.",
		Args: noCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(moduleNew(), moduleBuild(), moduleInspect(), moduleValidate(), moduleBench(), modulePush(), moduleDigest())
	return cmd
}

// limitFlags are the limits of one call.
func limitFlags(flags *pflag.FlagSet, l *sandbox.Limits) {
	flags.Int64Var(&l.Fuel, "fuel", sandbox.DefaultFuel, "units of work that a call may use, of about one instruction")
	flags.Int64Var(&l.Memory, "memory", sandbox.DefaultMemory, "bytes of memory that a call may use")
	flags.DurationVar(&l.Timeout, "timeout", sandbox.DefaultTimeout, "how long a call may take")
}

func checkLimits(l sandbox.Limits) error {
	if l.Fuel < 1 {
		return usageError{fmt.Errorf("--fuel=%d: use a number above 0", l.Fuel)}
	}
	if l.Timeout <= 0 {
		return usageError{fmt.Errorf("--timeout=%s: use 1ms or more", l.Timeout)}
	}
	if err := l.Validate(); err != nil {
		return usageError{fmt.Errorf("--%w", err)} // which begins with the name
	}
	return nil
}

// someModule refuses a command line that names none.
func someModule(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usageError{fmt.Errorf("%s needs a module: a file of WebAssembly, or files or a folder of Rego", cmd.CommandPath())}
	}
	return nil
}

func moduleInspect() *cobra.Command {
	var limits sandbox.Limits
	output := "text"
	cmd := &cobra.Command{
		Use:   "inspect FILE...",
		Short: "Show what a module answers, imports and needs",
		Example: `  gleaner module inspect policy.rego
  gleaner module inspect module.wasm.gz -o json`,
		Args: someModule,
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return usageError{fmt.Errorf("-o %s: use text or json", output)}
			}
			if err := checkLimits(limits); err != nil {
				return err
			}
			m, err := loadModule(cmd.Context(), limits, args)
			if err != nil {
				return err
			}
			defer m.close()
			if output == "json" {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(m.facts)
			}
			return m.facts.print(cmd.OutOrStdout(), limits)
		},
	}
	limitFlags(cmd.Flags(), &limits)
	cmd.Flags().StringVarP(&output, "output", "o", output, "text or json")
	return cmd
}

func (f moduleFacts) print(to io.Writer, limits sandbox.Limits) error {
	hooks := make([]string, 0, len(f.Hooks))
	for _, h := range f.Hooks {
		hooks = append(hooks, string(h))
	}
	imports := strings.Join(f.Imports, ", ")
	if imports == "" {
		imports = "none"
	}
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	for _, line := range [][2]string{
		{"engine", f.Engine},
		{"sha256", f.Digest},
		{"size", fmt.Sprintf("%d bytes of WebAssembly", f.Size)},
		{"hooks", strings.Join(hooks, ", ")},
		{map[string]string{"wasm": "imports", "rego": "host built-ins"}[f.Engine], imports},
		{"rewritten", "yes: it spends fuel"},
		{"compiled in", f.Compiled.Round(time.Millisecond).String()},
		{"initialisation", fmt.Sprintf("%d units of fuel", f.InitFuel)},
		{"limits of a call", fmt.Sprintf("%d units of fuel, %d bytes of memory, %s", limits.Fuel, limits.Memory, limits.Timeout)},
	} {
		kubectl.Fprintf(w, "%s\t%s\n", line[0], line[1])
	}
	return w.Flush()
}

func moduleValidate() *cobra.Command {
	var limits sandbox.Limits
	var settings string
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Say whether the operator would take a module in, and settings for it",
		Long: "Say whether the operator would take a module in: whether it compiles, imports only what there is, and\n" +
			"initialises under its limits; with --settings also whether its hook validate accepts them.",
		Example: `  gleaner module validate module.wasm.gz
  gleaner module validate policy.rego --settings settings.json`,
		Args: someModule,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := checkLimits(limits); err != nil {
				return err
			}
			m, err := loadModule(cmd.Context(), limits, args)
			if err != nil {
				return err
			}
			defer m.close()
			if settings != "" {
				if err := m.validate(cmd, settings); err != nil {
					return err
				}
			}
			kubectl.Fprintf(cmd.OutOrStdout(), "%s: valid\n", strings.Join(args, ", "))
			return nil
		},
	}
	limitFlags(cmd.Flags(), &limits)
	cmd.Flags().StringVar(&settings, "settings", "", "`file` with settings as JSON, for the module's hook validate")
	return cmd
}

// validate asks the module whether it accepts settings.
func (m *loaded) validate(cmd *cobra.Command, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		return fmt.Errorf("read settings: %s is no JSON object: %w", file, err)
	}
	r := sampleRequest(hostabi.HookValidate)
	r.Policy.Settings = data
	a, err := m.ask(cmd.Context(), r)
	m.say(cmd.ErrOrStderr(), a.log)
	switch {
	case err != nil:
		return err
	case a.verdict.Decision != hostabi.DecisionValid:
		return fmt.Errorf("the module refuses the settings: %s", a.verdict.Reason)
	}
	return nil
}

// say shows what a module has logged.
func (m *loaded) say(to io.Writer, log wasm.Log) {
	for _, line := range log.Lines {
		kubectl.Fprintf(to, "%s: %s\n", line.Source, line.Text)
	}
}

// sampleRequest is a request to ask a module with when there is no better one.
func sampleRequest(hook hostabi.Hook) hostabi.Request {
	owner := hostabi.Reference{APIVersion: "apps/v1", Kind: "StatefulSet", Name: "database", UID: "7d0b2c57-1d3c-4ad3-8a8f-8b9a6a2f9f10"}
	r := hostabi.Request{
		APIVersion: hostabi.Version, Hook: hook,
		Policy: hostabi.Policy{Name: "sample"},
		Time:   time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC), Attempt: 1, Round: 1,
	}
	if hook == hostabi.HookValidate {
		return r
	}
	r.Object = hostabi.Object{APIVersion: "v1", Kind: "PersistentVolumeClaim", Metadata: hostabi.Metadata{
		Name: "data-database-0", Namespace: "sample", UID: "0e8bfa0b-2f1c-4d0c-9f2e-0a5a2f6b1c11", ResourceVersion: "4711",
		OwnerReferences: []hostabi.Reference{owner},
	}}
	r.Owners = []hostabi.Owner{{Reference: owner, Standing: hostabi.StandingAbsent}}
	r.Requested = hostabi.RequestedUnspecified
	return r
}

var errNoHookToAsk = errors.New("the module has no hook but validate: name a request with --request")
