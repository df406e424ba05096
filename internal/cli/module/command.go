// Package module implements gleaner module: it creates, builds, inspects and publishes modules.
package module

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/internal/cli/arguments"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/loader"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// Command returns the command gleaner module.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "module",
		Short: "Create, inspect and publish modules",
		Long: "Create, inspect and publish modules. A module is a WebAssembly file, optionally compressed with gzip,\n" +
			"or one or more Rego files, or a directory of them. It is compiled and evaluated in the same way as by\n" +
			"the operator.",
		Args: arguments.RejectUnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(moduleNew(), moduleBuild(), moduleInspect(), moduleSchema(), moduleValidate(), moduleBench(), modulePush(), moduleVerify(), moduleDigest())
	return cmd
}

// requireModule rejects a command line without a module.
func requireModule(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return exit.AsUsage(fmt.Errorf("%s requires a module: a WebAssembly file, or Rego files or a directory of them", cmd.CommandPath()))
	}
	return nil
}

// load loads a module, if the limits of its calls are valid.
func load(ctx context.Context, limits sandbox.Limits, names []string) (*loader.Module, error) {
	if err := loader.CheckLimits(limits); err != nil {
		return nil, err
	}
	return loader.Load(ctx, limits, names)
}

func moduleInspect() *cobra.Command {
	var limits sandbox.Limits
	output := "text"
	cmd := &cobra.Command{
		Use:   "inspect FILE...",
		Short: "Show the hooks, imports and limits of a module",
		Example: `  gleaner module inspect policy.rego
  gleaner module inspect module.wasm.gz -o json`,
		Args: requireModule,
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "text" && output != "json" {
				return exit.AsUsage(fmt.Errorf("-o %s: use text or json", output))
			}
			m, err := load(cmd.Context(), limits, args)
			if err != nil {
				return err
			}
			defer m.Close()
			if output == "json" {
				encoder := json.NewEncoder(cmd.OutOrStdout())
				encoder.SetIndent("", "  ")
				return encoder.Encode(m.Facts)
			}
			return printFacts(m.Facts, cmd.OutOrStdout(), limits)
		},
	}
	loader.AddLimitFlags(cmd.Flags(), &limits)
	cmd.Flags().StringVarP(&output, "output", "o", output, "output `format`: text or json")
	return cmd
}

func printFacts(f loader.Facts, to io.Writer, limits sandbox.Limits) error {
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
		{"reads", map[policies.Needs]string{
			policies.NeedsObject: "whole objects (Object)", policies.NeedsMetadata: "the metadata of objects (Metadata)",
			policies.NeedsReference: "only what identifies an object (Reference)",
		}[f.Needs]},
		{"settings", map[bool]string{true: "not described", false: "described: see gleaner module schema"}[f.Settings == nil]},
		{"metered", "yes: it consumes fuel"},
		{"compiled in", f.Compiled.Round(time.Millisecond).String()},
		{"initialization", fmt.Sprintf("%d units of fuel", f.InitFuel)},
		{"limits of a call", fmt.Sprintf("%d units of fuel, %d bytes of memory, %s", limits.Fuel, limits.Memory, limits.Timeout)},
	} {
		printer.Fprintf(w, "%s\t%s\n", line[0], line[1])
	}
	return w.Flush()
}

func moduleValidate() *cobra.Command {
	var limits sandbox.Limits
	var settings string
	cmd := &cobra.Command{
		Use:   "validate FILE...",
		Short: "Check that the operator would accept a module and its settings",
		Long: "Check that the operator would accept a module: that it compiles, imports only available functions, and\n" +
			"initializes within its limits. With --settings, also check that its validate hook accepts the settings.",
		Example: `  gleaner module validate module.wasm.gz
  gleaner module validate policy.rego --settings settings.json`,
		Args: requireModule,
		RunE: func(cmd *cobra.Command, args []string) error {
			m, err := load(cmd.Context(), limits, args)
			if err != nil {
				return err
			}
			defer m.Close()
			if settings != "" {
				if err := validateSettings(m, cmd, settings); err != nil {
					return err
				}
			}
			printer.Fprintf(cmd.OutOrStdout(), "%s: valid\n", strings.Join(args, ", "))
			return nil
		},
	}
	loader.AddLimitFlags(cmd.Flags(), &limits)
	cmd.Flags().StringVar(&settings, "settings", "", "`file` with settings as JSON, for the module's validate hook")
	return cmd
}

// validateSettings evaluates the module's validate hook with settings.
func validateSettings(m *loader.Module, cmd *cobra.Command, file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	var object map[string]any
	if err := json.Unmarshal(data, &object); err != nil {
		return fmt.Errorf("read settings: %s is not a JSON object: %w", file, err)
	}
	r := sampleRequest(hostabi.HookValidate)
	r.Policy.Settings = data
	a, err := m.Evaluate(cmd.Context(), r)
	m.PrintLog(cmd.ErrOrStderr(), a.Log)
	switch {
	case err != nil:
		return err
	case a.Verdict.Decision != hostabi.DecisionValid:
		return fmt.Errorf("the module rejects the settings: %s", a.Verdict.Reason)
	}
	return nil
}

// sampleRequest returns an example request for a hook.
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
	r.Owners = []hostabi.Owner{{Reference: owner, Status: hostabi.OwnerAbsent}}
	if hook == hostabi.HookProtect {
		r.Owners[0].Status = hostabi.OwnerPresent
		r.UserInfo = &hostabi.UserInfo{Username: "sample", Groups: []string{"system:authenticated"}}
	}
	if hook == hostabi.HookRetain {
		r.Owners[0].Status = hostabi.OwnerPresent
		r.Retention = &hostabi.Retention{Policy: "sample", Namespace: "sample", Limit: "MaxAge"}
		return r
	}
	r.RequestedPropagation = hostabi.RequestedUnspecified
	return r
}

var errNoHook = errors.New("the module has only the validate hook: set --request")
