package module

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/loader"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// maxConfigMapSize is the maximum size of a module in a ConfigMap, in bytes, with a reserve for
// the key.
const maxConfigMapSize = 1<<20 - 1<<10

type buildOptions struct {
	dir    string
	output string
	tinygo bool
	rust   bool
	limits sandbox.Limits
}

func moduleBuild() *cobra.Command {
	o := buildOptions{dir: "."}
	cmd := &cobra.Command{
		Use:   "build [DIR]",
		Short: "Compile a module in Go or Rust and print its digest",
		Long: "Compile the module in DIR, by default the current directory, to WebAssembly; check that the operator would\n" +
			"accept it; and print its digest, which policies and finalizers need. A directory with a Cargo.toml has a module\n" +
			"in Rust, others with Go files have one in Go. A Rego module is only checked.\n" +
			"If DIR contains " + schemaFile + ", the module carries that JSON Schema of its settings.\n" +
			"Builds are reproducible: the same sources and compiler produce the same file on any machine. In Rust, crates that\n" +
			"are not published have to be in the folder of the module for that.",
		Example: `  gleaner module build bucket-cleaner
  gleaner module build bucket-cleaner --tinygo -o small.wasm.gz`,
		Args: atMostOneDirectory,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.dir = args[0]
			}
			if err := loader.CheckLimits(o.limits); err != nil {
				return err
			}
			return o.build(cmd)
		},
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "`file` to write, compressed if it ends in .gz; by default "+BuiltModule+" in DIR")
	cmd.Flags().BoolVar(&o.tinygo, "tinygo", false, "compile with TinyGo, which produces smaller modules")
	loader.AddLimitFlags(cmd.Flags(), &o.limits)
	return cmd
}

func atMostOneDirectory(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return exit.AsUsage(fmt.Errorf("%s accepts at most one directory: unexpected argument %s", cmd.CommandPath(), args[1]))
	}
	return nil
}

// build builds or checks the module, depending on its language.
func (o *buildOptions) build(cmd *cobra.Command) error {
	if info, err := os.Stat(o.dir); err != nil || !info.IsDir() {
		return exit.AsUsage(fmt.Errorf("build %s: not a directory: name the directory of the module", o.dir))
	}
	if _, err := os.Stat(filepath.Join(o.dir, cargoManifest)); err == nil {
		if o.tinygo {
			return exit.AsUsage(fmt.Errorf("build %s: Rust modules are not built with TinyGo: omit --tinygo", o.dir))
		}
		o.rust = true
		return o.compile(cmd)
	}
	files := map[string]int{}
	for _, extension := range []string{".go", ".rego"} {
		found, err := filepath.Glob(filepath.Join(loader.EscapeGlob(o.dir), "*"+extension))
		if err != nil {
			return fmt.Errorf("build %s: %w", o.dir, err)
		}
		files[extension] = len(found)
	}
	switch {
	case files[".go"] != 0:
		return o.compile(cmd)
	case files[".rego"] == 0:
		return exit.AsUsage(fmt.Errorf("build %s: no Go, Rust or Rego files found: create a module with \"gleaner module new\"", o.dir))
	case o.tinygo || o.output != "":
		return exit.AsUsage(fmt.Errorf("build %s: Rego modules are not built: omit --tinygo and --output", o.dir))
	}
	return o.checkRego(cmd)
}

// checkRego checks that a Rego module compiles.
func (o *buildOptions) checkRego(cmd *cobra.Command) error {
	m, err := loader.Load(cmd.Context(), o.limits, []string{o.dir})
	if err != nil {
		return err
	}
	m.Close()
	packed, _, err := packModule([]string{o.dir})
	if err != nil {
		return err
	}
	printer.Fprintf(cmd.OutOrStdout(), "%s: valid; Rego modules are not built\n\n", o.dir)
	where := "It fits into a ConfigMap or inline into the resource."
	if len(packed) > 1 {
		where = "It has several files, but a module in a ConfigMap has only one."
	}
	return printSummary(cmd.OutOrStdout(), m.Facts, o.dir, where)
}

// compile compiles to WebAssembly, checks that the operator would accept it, and writes it.
func (o *buildOptions) compile(cmd *cobra.Command) error {
	temporary, err := os.MkdirTemp("", "gleaner-build-")
	if err != nil {
		return fmt.Errorf("build %s: %w", o.dir, err)
	}
	defer os.RemoveAll(temporary)
	code, fit, err := o.compileToFit(cmd, filepath.Join(temporary, "module.wasm"))
	if err != nil {
		return err
	}
	m, err := loader.LoadWasm(cmd.Context(), o.limits, o.dir, code)
	if err != nil {
		return err
	}
	m.Close()
	file, written, err := o.save(code)
	if err != nil {
		return fmt.Errorf("build %s: %w", o.dir, err)
	}
	printer.Fprintf(cmd.OutOrStdout(), "%s: %d bytes\n\n", file, len(written))
	where := "It fits into a ConfigMap" + fit + "."
	if len(written) > maxConfigMapSize {
		where = "It is too large for a ConfigMap, which is limited to 1 MiB."
	}
	return printSummary(cmd.OutOrStdout(), m.Facts, file, where)
}

// seldomUsed are packages of Go's library that a call of most modules does not use, or not for
// long: without inlining they take less space, and no more fuel.
var seldomUsed = []string{
	"bytes", "encoding/json", "fmt", "internal/poll", "internal/strconv", "os", "reflect", "strconv", "sync", "syscall", "time",
}

// waysToFit are the flags that make a module smaller, the cheapest first.
func waysToFit() []wayToFit {
	first := wayToFit{reason: " because parts of Go's library were built without inlining"}
	for _, p := range seldomUsed {
		first.flags = append(first.flags, "-gcflags="+p+"=-l")
	}
	return []wayToFit{first, {
		[]string{"-gcflags=all=-l"},
		" because it was built without inlining (-gcflags=all=-l), which uses about a third more fuel",
	}}
}

type wayToFit struct {
	flags  []string
	reason string // completes "It fits into a ConfigMap"
}

// compileToFit compiles, with the first flags with which the module fits into a ConfigMap, and
// without any if none are enough. It returns the reason of these flags.
func (o *buildOptions) compileToFit(cmd *cobra.Command, to string) (code []byte, reason string, err error) {
	code, fits, err := o.compileWith(cmd, to)
	if err != nil || fits || o.tinygo || o.rust {
		return code, "", err
	}
	for _, way := range waysToFit() {
		small, fits, err := o.compileWith(cmd, to, way.flags...)
		if err != nil {
			return nil, "", err
		}
		if fits {
			return small, way.reason, nil
		}
	}
	return code, "", nil
}

// compileWith compiles, and reports whether the module fits into a ConfigMap.
func (o *buildOptions) compileWith(cmd *cobra.Command, to string, flags ...string) (code []byte, fits bool, err error) {
	if err := o.runCompiler(cmd.Context(), to, cmd.ErrOrStderr(), flags...); err != nil {
		return nil, false, err
	}
	if code, err = os.ReadFile(to); err != nil {
		return nil, false, fmt.Errorf("build %s: %w", o.dir, err)
	}
	if code, err = embedSchema(o.dir, code); err != nil {
		return nil, false, err
	}
	packed, err := gzipped(code)
	return code, len(packed) <= maxConfigMapSize, err
}

// runCompiler runs go, tinygo or cargo, which print their errors themselves.
func (o *buildOptions) runCompiler(ctx context.Context, to string, stderr io.Writer, flags ...string) error {
	if o.rust {
		return o.runCargo(ctx, to, stderr)
	}
	name, missing := "go", "install Go 1.24 or later from https://go.dev/dl"
	args := slices.Concat([]string{"build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-s -w"}, flags, []string{"-o", to, "."})
	if o.tinygo {
		name, missing = "tinygo", "install it from https://tinygo.org, or omit --tinygo"
		args = []string{"build", "-target=wasip1", "-buildmode=c-shared", "-scheduler=none", "-gc=leaking", "-opt=2", "-no-debug", "-o", to, "."}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("build %s: %s not found on the PATH: %s", o.dir, name, missing)
	}
	if path, err = filepath.Abs(path); err != nil {
		return fmt.Errorf("build %s: %w", o.dir, err)
	}
	compiler := exec.CommandContext(ctx, path, args...)
	compiler.Dir = o.dir
	compiler.Env = os.Environ()
	if !o.tinygo { // tinygo sets them itself
		compiler.Env = append(compiler.Env, "GOOS=wasip1", "GOARCH=wasm")
	}
	var compilerOutput bytes.Buffer
	both := io.MultiWriter(stderr, &compilerOutput)
	compiler.Stdout, compiler.Stderr = both, both
	err = compiler.Run()
	if err != nil && o.tinygo && bytes.Contains(compilerOutput.Bytes(), []byte("requires go version")) {
		return fmt.Errorf("build %s: this TinyGo does not support the Go version on the PATH or in go.mod: "+
			"put an older Go first on the PATH, set GOTOOLCHAIN=local, and write go 1.23 in go.mod: %w", o.dir, err)
	}
	if err != nil {
		return fmt.Errorf("build %s: %s build: %w", o.dir, name, err)
	}
	return nil
}

// save writes the module atomically, compressed if the name ends in .gz.
func (o *buildOptions) save(code []byte) (file string, written []byte, err error) {
	file = o.output
	if file == "" {
		file = filepath.Join(o.dir, BuiltModule)
	}
	if strings.HasSuffix(file, ".gz") {
		if code, err = gzipped(code); err != nil {
			return "", nil, err
		}
	}
	temporary, err := os.CreateTemp(filepath.Dir(file), ".gleaner-build-")
	if err != nil {
		return "", nil, err
	}
	defer os.Remove(temporary.Name()) // already renamed on success
	_, err = temporary.Write(code)
	if err := errors.Join(err, temporary.Chmod(0o644), temporary.Close()); err != nil {
		return "", nil, err
	}
	return file, code, os.Rename(temporary.Name(), file)
}

func gzipped(code []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(code); err != nil {
		return nil, err
	}
	err = w.Close()
	return b.Bytes(), err
}

// printSummary prints the properties of the module, and what to write in policies and finalizers.
func printSummary(out io.Writer, f loader.Facts, file, where string) error {
	var hooks []string
	for _, h := range f.Hooks {
		hooks = append(hooks, string(h))
	}
	_, err := printer.Fprintf(out, `hooks   %s
size    %d bytes of WebAssembly
sha256  %s

Policies and finalizers in Enforce mode, or with grants, must pin the digest:

  module: {name: …, digest: %s}

%s To push it to a registry:

  gleaner module push %s REGISTRY/REPOSITORY:TAG
`, strings.Join(hooks, ", "), f.Size, f.Digest, f.Digest, where, file)
	return err
}
