package module

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
)

// newModule holds the arguments of gleaner module new.
type newModule struct {
	name string
	lang string
	hook string
	dir  string
}

// newHooks are the hooks that have templates.
var newHooks = []hostabi.Hook{hostabi.HookFinalize, hostabi.HookPropagate, hostabi.HookCollect, hostabi.HookProtect, hostabi.HookRetain}

// language is a language that has templates.
type language struct {
	name      string
	unitTests string // the command that runs them before the module is compiled; empty: gleaner test runs them
	note      string // printed last
	sdk       func() []sdkModule
}

var languages = map[string]language{
	"go": {
		name: "Go", unitTests: "go test ./...", sdk: goSDK,
		note: "Compiled with Go, it is close to the 1 MiB limit of a ConfigMap. If it grows, compile it with\n" +
			"TinyGo (gleaner module build --tinygo), or push it to a registry (gleaner module push).\n",
	},
	"rego": {name: "Rego", sdk: regoSDK},
	"rust": {name: "Rust", unitTests: "cargo test", sdk: rustSDK},
}

const hookList = "finalize, propagate, collect, protect or retain"

func moduleNew() *cobra.Command {
	o := newModule{hook: string(hostabi.HookFinalize)}
	cmd := &cobra.Command{
		Use:   "new --lang go|rego|rust NAME",
		Short: "Create a module from a template",
		Long: "Create a directory with a working finalizer or policy module, its tests, the resources to apply, and a copy\n" +
			"of the SDK. Existing files are never changed.",
		Example: `  gleaner module new --lang go bucket-cleaner
  gleaner module new --lang rego --hook collect keep-claims
  gleaner module new --lang rust --hook protect guard`,
		Args: requireName,
		RunE: func(cmd *cobra.Command, args []string) error {
			o.name = args[0]
			if err := o.complete(); err != nil {
				return err
			}
			return o.write(cmd.OutOrStdout())
		},
	}
	cmd.Flags().StringVar(&o.lang, "lang", "", "`language` of the module: go, rego or rust")
	cmd.Flags().StringVar(&o.hook, "hook", o.hook, "`hook` of the module: "+hookList)
	cmd.Flags().StringVar(&o.dir, "dir", "", "`directory` to create; by default NAME")
	return cmd
}

func requireName(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return exit.AsUsage(fmt.Errorf("%s requires exactly one name, such as %s --lang go bucket-cleaner", cmd.CommandPath(), cmd.CommandPath()))
	}
	return nil
}

var moduleName = regexp.MustCompile(`^[a-z]([a-z0-9-]{0,61}[a-z0-9])?$`)

// complete validates the arguments. The name is also used for a namespace and other resources.
func (o *newModule) complete() error {
	var word any
	err := yaml.Unmarshal([]byte(o.name), &word)
	_, isText := word.(string)
	switch {
	case !moduleName.MatchString(o.name):
		return exit.AsUsage(fmt.Errorf("invalid name %q: use up to 63 lower-case letters, digits and '-', starting with a letter, such as bucket-cleaner", o.name))
	case err != nil || !isText:
		return exit.AsUsage(fmt.Errorf("invalid name %q: not a string in YAML; use another, such as %s-things", o.name, o.name))
	case o.lang == "":
		return exit.AsUsage(errors.New("--lang is required: use --lang go, --lang rego or --lang rust"))
	case languages[o.lang].name == "":
		return exit.AsUsage(fmt.Errorf("--lang=%s: use go, rego or rust", o.lang))
	case !slices.Contains(newHooks, hostabi.Hook(o.hook)):
		return exit.AsUsage(fmt.Errorf("--hook=%s: use %s", o.hook, hookList))
	}
	if o.dir == "" {
		o.dir = o.name
	}
	return nil
}

// write fills the directory, which must be empty or not exist.
func (o *newModule) write(out io.Writer) error {
	switch entries, err := os.ReadDir(o.dir); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return fmt.Errorf("write module to %s: %w", o.dir, err)
	case len(entries) != 0:
		return exit.AsUsage(fmt.Errorf("directory %s is not empty: set another with --dir", o.dir))
	}
	files, err := o.files()
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := f.write(o.dir); err != nil {
			return fmt.Errorf("write module to %s: %w", o.dir, err)
		}
	}
	l := languages[o.lang]
	printer.Fprintf(out, "Created a %s module with hook %s in %s. Next steps:\n\n  cd %[3]s\n", l.name, o.hook, o.dir)
	if l.unitTests != "" {
		printer.Fprintf(out, "  %-22s # run the unit tests\n  gleaner module build   # compile\n", l.unitTests)
	}
	printer.Fprintf(out, "  gleaner test           # run the cases in cases.yaml\n\nSee README.md for how to deploy it to a cluster.\n%s", l.note)
	return nil
}

// newFile is a file to write. The path is relative to the directory, with slashes.
type newFile struct {
	path string
	text []byte
}

// write writes the file. It never overwrites an existing one.
func (f newFile) write(dir string) error {
	path := filepath.Join(dir, filepath.FromSlash(f.path))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	if _, err := file.Write(f.text); err != nil {
		return errors.Join(err, file.Close())
	}
	return file.Close()
}

// source returns the main source file.
func (o *newModule) source() string {
	switch {
	case o.lang == "rego":
		return "policy.rego"
	case o.lang == "rust":
		return "src/lib.rs"
	case o.hook == string(hostabi.HookFinalize):
		return "finalizer.go"
	default:
		return "policy.go"
	}
}

// resources returns the template of the resources: all hooks but finalize are those of policies.
func (o *newModule) resources() string {
	if o.hook == string(hostabi.HookFinalize) {
		return "all/finalize.resources.yaml"
	}
	return "all/policy.resources.yaml"
}

// sourceTest returns the test file of the main source file.
func (o *newModule) sourceTest() string {
	extension := filepath.Ext(o.source())
	return strings.TrimSuffix(o.source(), extension) + "_test" + extension
}
