// Package loader loads modules from files, as the operator does.
package loader

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/rego"
	"github.com/gleaner-dev/gleaner/policies/settings"
	"github.com/gleaner-dev/gleaner/policies/source"
	"github.com/gleaner-dev/gleaner/policies/wasm"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// MaxModuleSize is the maximum size of a module in bytes, decompressed.
const MaxModuleSize = 64 << 20

// Facts is the output document of gleaner module inspect.
type Facts struct {
	Engine   string         `json:"engine"` // wasm or rego
	Digest   string         `json:"sha256"`
	Size     int            `json:"size"` // bytes of WebAssembly
	Hooks    []hostabi.Hook `json:"hooks"`
	Imports  []string       `json:"imports"`
	Needs    policies.Needs `json:"needs"` // how much of the object it reads
	Compiled time.Duration  `json:"compileNanoseconds"`
	InitFuel int64          `json:"initFuel"`

	Settings json.RawMessage `json:"settings,omitempty"` // the schema of the settings
}

// factsOfSettings returns the schema of a module's settings for its Facts.
func factsOfSettings(s *settings.Schema) json.RawMessage {
	if s == nil {
		return nil
	}
	return s.JSON()
}

// Module is a module of either engine, ready to be evaluated.
type Module struct {
	Facts    Facts
	Settings *settings.Schema // nil: it has none
	Evaluate func(context.Context, hostabi.Request) (evaluation, error)
	Close    func()
}

type evaluation struct {
	Verdict hostabi.Verdict
	Usage   sandbox.Usage
	Log     wasm.Log
}

// Load loads a module as the operator does: a WebAssembly file, optionally compressed
// with gzip, or Rego files or directories.
func Load(ctx context.Context, limits sandbox.Limits, names []string) (*Module, error) {
	files, err := RegoFiles(names)
	if err != nil {
		return nil, err
	}
	if len(files) != 0 {
		return loadRego(ctx, limits, names[0], files)
	}
	if len(names) != 1 {
		return nil, exit.AsUsage(errors.New("only Rego modules can have several files: name one module"))
	}
	data, err := os.ReadFile(names[0])
	if err != nil {
		return nil, fmt.Errorf("read module: %w", err)
	}
	return LoadWasm(ctx, limits, names[0], data)
}

// RegoFiles reads the Rego files among the names, and in the directories among them. It
// returns none if there are no Rego files.
func RegoFiles(names []string) ([]rego.File, error) {
	var paths []string
	others := 0
	for _, name := range names {
		info, err := os.Stat(name)
		switch {
		case err != nil:
			return nil, fmt.Errorf("read module: %w", err)
		case info.IsDir():
			found, err := filepath.Glob(filepath.Join(name, "*.rego"))
			if err != nil || len(found) == 0 {
				return nil, fmt.Errorf("read module: no .rego files in directory %s", name)
			}
			paths = append(paths, found...)
		case strings.HasSuffix(name, ".rego"):
			paths = append(paths, name)
		default:
			others++
		}
	}
	if len(paths) != 0 && others != 0 {
		return nil, exit.AsUsage(errors.New("a module can't have both Rego and other files"))
	}
	var files []rego.File
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("read module: %w", err)
		}
		files = append(files, rego.File{Name: path, Text: string(text)})
	}
	return files, nil
}

// LoadWasm loads a WebAssembly module, optionally compressed with gzip.
func LoadWasm(ctx context.Context, limits sandbox.Limits, name string, data []byte) (*Module, error) {
	code, err := source.Decompress(data, MaxModuleSize)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	if !bytes.HasPrefix(code, []byte("\x00asm")) && !bytes.HasPrefix(data, []byte{0x1f, 0x8b}) {
		return nil, fmt.Errorf("%s is neither WebAssembly, optionally compressed with gzip, nor a .rego file", name)
	}
	engine, err := wasm.New(wasm.Config{})
	if err != nil {
		return nil, err
	}
	began := time.Now()
	module, err := engine.Load(ctx, code)
	if err != nil {
		engine.Close()
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	took := time.Since(began)
	policy, err := wasm.NewPolicy(ctx, module, wasm.Options{Name: name, Limits: limits, Instances: 1})
	if err != nil {
		module.Close()
		engine.Close()
		return nil, err
	}
	return &Module{
		Facts: Facts{
			Engine: "wasm", Digest: module.Digest, Size: module.Size, Hooks: module.Hooks, Imports: module.Imports, Needs: module.Needs,
			Compiled: took, InitFuel: policy.InitFuel, Settings: factsOfSettings(module.Settings),
		},
		Settings: module.Settings,
		Evaluate: func(ctx context.Context, r hostabi.Request) (evaluation, error) {
			a, err := policy.EvaluateMetered(ctx, r)
			return evaluation{a.Verdict, a.Usage, a.Log}, err
		},
		Close: func() { policy.Close(); module.Close(); engine.Close() },
	}, nil
}

func loadRego(ctx context.Context, limits sandbox.Limits, name string, files []rego.File) (*Module, error) {
	engine, err := rego.New(rego.Config{})
	if err != nil {
		return nil, err
	}
	began := time.Now()
	module, err := engine.Load(ctx, files)
	if err != nil {
		engine.Close()
		return nil, err // includes the file name
	}
	took := time.Since(began)
	policy, err := rego.NewPolicy(ctx, module, rego.Options{Name: name, Limits: limits, Instances: 1})
	if err != nil {
		module.Close()
		engine.Close()
		return nil, err
	}
	return &Module{
		Facts: Facts{
			Engine: "rego", Digest: DigestOf(files, false), Size: module.Size, Hooks: module.Hooks, Imports: module.Builtins, Needs: module.Needs, Compiled: took,
			Settings: factsOfSettings(module.Settings),
		},
		Settings: module.Settings,
		Evaluate: func(ctx context.Context, r hostabi.Request) (evaluation, error) {
			a, err := policy.EvaluateMetered(ctx, r)
			return evaluation{Verdict: a.Verdict, Usage: a.Usage}, err
		},
		Close: func() { policy.Close(); module.Close(); engine.Close() },
	}, nil
}

// AddLimitFlags adds the flags for the limits of one call.
func AddLimitFlags(flags *pflag.FlagSet, l *sandbox.Limits) {
	flags.Int64Var(&l.Fuel, "fuel", sandbox.DefaultFuel, "maximum fuel of a call, in units of about one instruction")
	flags.Int64Var(&l.Memory, "memory", sandbox.DefaultMemory, "maximum memory of a call, in bytes")
	flags.DurationVar(&l.Timeout, "timeout", sandbox.DefaultTimeout, "maximum duration of a call")
}

// CheckLimits returns an error if a limit is invalid.
func CheckLimits(l sandbox.Limits) error {
	if l.Fuel < 1 {
		return exit.AsUsage(fmt.Errorf("--fuel=%d: use 1 or more", l.Fuel))
	}
	if l.Timeout <= 0 {
		return exit.AsUsage(fmt.Errorf("--timeout=%s: use 1ms or more", l.Timeout))
	}
	if err := l.Validate(); err != nil {
		return exit.AsUsage(fmt.Errorf("--%w", err)) // it begins with the name of the flag
	}
	return nil
}

// PrintLog prints the log of a module.
func (m *Module) PrintLog(to io.Writer, log wasm.Log) {
	for _, line := range log.Lines {
		printer.Fprintf(to, "%s: %s\n", line.Source, line.Text)
	}
}

// DigestOf returns the digest of a Rego module, with or without its tests.
func DigestOf(files []rego.File, tests bool) string {
	var list []source.File
	for _, f := range files {
		if tests || !strings.HasSuffix(f.Name, "_test.rego") {
			list = append(list, source.File{Name: filepath.Base(f.Name), Data: []byte(f.Text)})
		}
	}
	slices.SortFunc(list, func(a, b source.File) int { return strings.Compare(a.Name, b.Name) })
	return source.Digest(list)
}

// EscapeGlob escapes a path for use in a glob pattern.
func EscapeGlob(path string) string {
	return regexp.MustCompile(`[*?[\\]`).ReplaceAllString(path, `\$0`)
}

// ModuleFiles reads the files of a flag, each as NAME=FILE: a WebAssembly module, or a file or folder of Rego
// without its tests.
func ModuleFiles(flag string, names []string) (map[string][]source.File, error) {
	given := map[string][]source.File{}
	for _, text := range names {
		name, path, ok := strings.Cut(text, "=")
		if !ok || name == "" || path == "" {
			return nil, exit.Usagef("%s=%s: write NAME=FILE", flag, text)
		}
		files, err := moduleFiles(path)
		if err != nil {
			return nil, exit.AsUsage(err)
		}
		given[name] = files
	}
	return given, nil
}

func moduleFiles(path string) (files []source.File, err error) {
	rego, err := RegoFiles([]string{path})
	if err != nil {
		return nil, err
	}
	for _, f := range rego {
		if !strings.HasSuffix(f.Name, "_test.rego") {
			files = append(files, source.File{Name: filepath.Base(f.Name), Data: []byte(f.Text)})
		}
	}
	slices.SortFunc(files, func(a, b source.File) int { return strings.Compare(a.Name, b.Name) })
	if len(rego) != 0 {
		return files, nil
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return []source.File{{Name: filepath.Base(path), Data: data}}, nil
}
