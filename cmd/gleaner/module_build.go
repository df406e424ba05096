package main

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

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/policies/wasm/sandbox"
)

// mostConfigMap is what a ConfigMap holds, in bytes, with some room for the key.
const mostConfigMap = 1<<20 - 1<<10

type buildOptions struct {
	folder string
	output string
	tinygo bool
	limits sandbox.Limits
}

func moduleBuild() *cobra.Command {
	o := buildOptions{folder: "."}
	cmd := &cobra.Command{
		Use:   "build [DIR]",
		Short: "Compile a module in Go, and say what to write in its resource",
		Long: "Compile a module in Go to WebAssembly, in the folder DIR or the current one, see that the operator would\n" +
			"take it in, and say what to write in its resource. A module in Rego is seen to compile; there is nothing\n" +
			"to build. The same sources and compiler make the same file on any machine.",
		Example: `  gleaner module build bucket-cleaner
  gleaner module build bucket-cleaner --tinygo -o small.wasm.gz`,
		Args: oneFolder,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 1 {
				o.folder = args[0]
			}
			if err := checkLimits(o.limits); err != nil {
				return err
			}
			return o.build(cmd)
		},
	}
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "`file` to write, compressed if it ends in .gz; without it, "+builtModule+" in DIR")
	cmd.Flags().BoolVar(&o.tinygo, "tinygo", false, "compile with TinyGo, whose modules are smaller")
	limitFlags(cmd.Flags(), &o.limits)
	return cmd
}

func oneFolder(cmd *cobra.Command, args []string) error {
	if len(args) > 1 {
		return usageError{fmt.Errorf("%s takes one folder: %s is one too many", cmd.CommandPath(), args[1])}
	}
	return nil
}

// build does what there is to do for the language of the folder.
func (o *buildOptions) build(cmd *cobra.Command) error {
	if info, err := os.Stat(o.folder); err != nil || !info.IsDir() {
		return usageError{fmt.Errorf("build %s: it is no folder: name the one that the module is in", o.folder)}
	}
	files := map[string]int{}
	for _, extension := range []string{".go", ".rego"} {
		found, err := filepath.Glob(filepath.Join(quoted(o.folder), "*"+extension))
		if err != nil {
			return fmt.Errorf("build %s: %w", o.folder, err)
		}
		files[extension] = len(found)
	}
	switch {
	case files[".go"] != 0:
		return o.compile(cmd)
	case files[".rego"] == 0:
		return usageError{fmt.Errorf("build %s: there is neither Go nor Rego in it: begin with \"gleaner module new\"", o.folder)}
	case o.tinygo || o.output != "":
		return usageError{fmt.Errorf("build %s: it is Rego, of which there is nothing to build: leave --tinygo and --output out", o.folder)}
	}
	return o.lookAtRego(cmd)
}

// lookAtRego sees that Rego compiles.
func (o *buildOptions) lookAtRego(cmd *cobra.Command) error {
	m, err := loadModule(cmd.Context(), o.limits, []string{o.folder})
	if err != nil {
		return err
	}
	m.close()
	packed, _, err := packModule([]string{o.folder})
	if err != nil {
		return err
	}
	kubectl.Fprintf(cmd.OutOrStdout(), "%s: it compiles, and as it is Rego there is nothing to build\n\n", o.folder)
	where := "It fits into a ConfigMap, and into the resource itself."
	if len(packed) > 1 {
		where = "A ConfigMap holds one file, and this is several."
	}
	return advise(cmd.OutOrStdout(), m.facts, o.folder, where)
}

// compile makes WebAssembly of Go, and takes that in as the operator would before
// it is written.
func (o *buildOptions) compile(cmd *cobra.Command) error {
	temporary, err := os.MkdirTemp("", "gleaner-build-")
	if err != nil {
		return fmt.Errorf("build %s: %w", o.folder, err)
	}
	defer os.RemoveAll(temporary)
	code, fitted, err := o.fit(cmd, filepath.Join(temporary, "module.wasm"))
	if err != nil {
		return err
	}
	m, err := loadWasm(cmd.Context(), o.limits, o.folder, code)
	if err != nil {
		return err
	}
	m.close()
	file, written, err := o.save(code)
	if err != nil {
		return fmt.Errorf("build %s: %w", o.folder, err)
	}
	kubectl.Fprintf(cmd.OutOrStdout(), "%s: %d bytes\n\n", file, len(written))
	where := "It fits into a ConfigMap."
	switch {
	case len(written) > mostConfigMap:
		where = "It is too large for a ConfigMap, which holds 1 MiB."
	case fitted:
		where = "It fits into a ConfigMap, since it was built without inlining (-gcflags=all=-l), which takes it a third more fuel."
	}
	return advise(cmd.OutOrStdout(), m.facts, file, where)
}

// fit compiles, and does so without inlining if only that makes the module fit into a
// ConfigMap.
func (o *buildOptions) fit(cmd *cobra.Command, to string) (code []byte, fitted bool, err error) {
	if code, err = o.compiled(cmd, to); err != nil || o.tinygo {
		return code, false, err
	}
	if packed, err := zipped(code); err != nil || len(packed) <= mostConfigMap {
		return code, false, err
	}
	small, err := o.compiled(cmd, to, "-gcflags=all=-l")
	if err != nil {
		return nil, false, err
	}
	if packed, err := zipped(small); err != nil || len(packed) > mostConfigMap {
		return code, false, err
	}
	return small, true, nil
}

func (o *buildOptions) compiled(cmd *cobra.Command, to string, flags ...string) ([]byte, error) {
	if err := o.runCompiler(cmd.Context(), to, cmd.ErrOrStderr(), flags...); err != nil {
		return nil, err
	}
	code, err := os.ReadFile(to)
	if err != nil {
		return nil, fmt.Errorf("build %s: %w", o.folder, err)
	}
	return code, nil
}

// runCompiler runs go or tinygo, which say themselves what is wrong.
func (o *buildOptions) runCompiler(ctx context.Context, to string, stderr io.Writer, flags ...string) error {
	name, missing := "go", "install Go 1.24 or later from https://go.dev/dl"
	args := slices.Concat([]string{"build", "-buildmode=c-shared", "-trimpath", "-buildvcs=false", "-ldflags=-s -w"}, flags, []string{"-o", to, "."})
	if o.tinygo {
		name, missing = "tinygo", "install it from https://tinygo.org, or leave --tinygo out"
		args = []string{"build", "-target=wasip1", "-buildmode=c-shared", "-scheduler=none", "-gc=leaking", "-opt=2", "-no-debug", "-o", to, "."}
	}
	path, err := exec.LookPath(name)
	if err != nil {
		return fmt.Errorf("build %s: there is no %s on the PATH: %s", o.folder, name, missing)
	}
	if path, err = filepath.Abs(path); err != nil {
		return fmt.Errorf("build %s: %w", o.folder, err)
	}
	compiler := exec.CommandContext(ctx, path, args...)
	compiler.Dir = o.folder
	compiler.Env = os.Environ()
	if !o.tinygo { // which sets them for what it runs
		compiler.Env = append(compiler.Env, "GOOS=wasip1", "GOARCH=wasm")
	}
	var said bytes.Buffer
	both := io.MultiWriter(stderr, &said)
	compiler.Stdout, compiler.Stderr = both, both
	err = compiler.Run()
	if err != nil && o.tinygo && bytes.Contains(said.Bytes(), []byte("requires go version")) {
		return fmt.Errorf("build %s: this TinyGo does not take the Go that comes first on the PATH, or the one that go.mod asks for: "+
			"have an older Go come first on the PATH with GOTOOLCHAIN=local, and write go 1.23 into go.mod: %w", o.folder, err)
	}
	if err != nil {
		return fmt.Errorf("build %s: %s build: %w", o.folder, name, err)
	}
	return nil
}

// save writes the module, as its name wants it, in place of what was there. Nobody
// sees half of it.
func (o *buildOptions) save(code []byte) (file string, written []byte, err error) {
	file = o.output
	if file == "" {
		file = filepath.Join(o.folder, builtModule)
	}
	if strings.HasSuffix(file, ".gz") {
		if code, err = zipped(code); err != nil {
			return "", nil, err
		}
	}
	temporary, err := os.CreateTemp(filepath.Dir(file), ".gleaner-build-")
	if err != nil {
		return "", nil, err
	}
	defer os.Remove(temporary.Name()) // gone already if all went well
	_, err = temporary.Write(code)
	if err := errors.Join(err, temporary.Chmod(0o644), temporary.Close()); err != nil {
		return "", nil, err
	}
	return file, code, os.Rename(temporary.Name(), file)
}

func zipped(code []byte) ([]byte, error) {
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

// advise says what the module is, and what to write in its resource.
func advise(out io.Writer, f moduleFacts, file, where string) error {
	var hooks []string
	for _, h := range f.Hooks {
		hooks = append(hooks, string(h))
	}
	_, err := kubectl.Fprintf(out, `hooks   %s
size    %d bytes of WebAssembly
sha256  %s

Write into each policy and finalizer that enforces what it decides, or has grants:

  module: {name: …, digest: %s}

%s To put it into a registry:

  gleaner module push %s REGISTRY/REPOSITORY:TAG
`, strings.Join(hooks, ", "), f.Size, f.Digest, f.Digest, where, file)
	return err
}
