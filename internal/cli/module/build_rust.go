package module

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	// cargoManifest is the file that makes a directory one of a Rust module.
	cargoManifest = "Cargo.toml"

	// rustTarget is the target for which Rust modules are compiled. Unlike that of WASI, it imports nothing.
	rustTarget = "wasm32-unknown-unknown"

	// rustLinker is the variable with which Cargo is given a linker for that target.
	rustLinker = "CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER"
)

// runCargo compiles the Rust module, and copies it to a file. Cargo prints its errors itself.
func (o *buildOptions) runCargo(ctx context.Context, to string, stderr io.Writer) error {
	for _, name := range []string{"cargo", "rustc"} {
		if _, err := exec.LookPath(name); err != nil {
			return fmt.Errorf("build %s: %s not found on the PATH: install Rust 1.63 or later from https://rustup.rs", o.dir, name)
		}
	}
	linker, err := o.linker(ctx)
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		return fmt.Errorf("build %s: %w", o.dir, err)
	}
	// Builds are reproducible: messages of panics name files without the folder. Flags of the author take precedence.
	remap := fmt.Sprintf("build.rustflags=[%q]", "--remap-path-prefix="+dir+"=.")
	cargo := exec.CommandContext(ctx, "cargo", "build", "--release", "--target", rustTarget, "--message-format", "json-render-diagnostics", "--config", remap)
	cargo.Dir, cargo.Env = o.dir, append(os.Environ(), linker...)
	var messages bytes.Buffer
	cargo.Stdout, cargo.Stderr = &messages, stderr
	if err := cargo.Run(); err != nil {
		return fmt.Errorf("build %s: cargo build: %w", o.dir, err)
	}
	built, err := builtByCargo(&messages)
	if err != nil {
		return fmt.Errorf("build %s: %w", o.dir, err)
	}
	code, err := os.ReadFile(built)
	if err != nil {
		return fmt.Errorf("build %s: %w", o.dir, err)
	}
	if err := os.WriteFile(to, code, 0o644); err != nil {
		return fmt.Errorf("build %s: %w", o.dir, err)
	}
	return nil
}

// linker returns the variable that gives Cargo a linker, if Rust has none of its own, as in Debian. It reports what
// Rust lacks.
func (o *buildOptions) linker(ctx context.Context) ([]string, error) {
	libraries, err := o.askRust(ctx, "--print", "target-libdir", "--target", rustTarget)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(libraries); err != nil {
		return nil, fmt.Errorf("build %s: this Rust has no target %[2]s: run \"rustup target add %[2]s\", or on Debian and Ubuntu \"apt-get install libstd-rust-dev-wasm32\"", o.dir, rustTarget)
	}
	host, err := o.askRust(ctx, "--print", "target-libdir")
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(host, "..", "bin", "rust-lld")); err == nil || os.Getenv(rustLinker) != "" {
		return nil, nil
	}
	if _, err := exec.LookPath("lld"); err != nil {
		return nil, fmt.Errorf("build %s: this Rust has no linker for WebAssembly: on Debian and Ubuntu run \"apt-get install lld\", or set %s", o.dir, rustLinker)
	}
	return []string{rustLinker + "=lld"}, nil
}

// askRust returns what rustc prints about itself.
func (o *buildOptions) askRust(ctx context.Context, args ...string) (string, error) {
	rustc := exec.CommandContext(ctx, "rustc", args...)
	rustc.Dir = o.dir
	text, err := rustc.Output()
	if err != nil {
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s", err, bytes.TrimSpace(exit.Stderr))
		}
		return "", fmt.Errorf("build %s: rustc %s: %w", o.dir, strings.Join(args, " "), err)
	}
	return strings.TrimSpace(string(text)), nil
}

// builtByCargo returns the file of the module among the messages of a build, of which the last one counts: crates that
// it needs are built before.
func builtByCargo(messages io.Reader) (string, error) {
	var built string
	for d := json.NewDecoder(messages); ; {
		var message struct {
			Reason string `json:"reason"`
			Target struct {
				CrateTypes []string `json:"crate_types"`
			} `json:"target"`
			Filenames []string `json:"filenames"`
		}
		switch err := d.Decode(&message); {
		case errors.Is(err, io.EOF) && built == "":
			return "", fmt.Errorf("cargo built no module: write crate-type = [\"cdylib\"] under [lib] in %s", cargoManifest)
		case errors.Is(err, io.EOF):
			return built, nil
		case err != nil:
			return "", fmt.Errorf("read messages of cargo: %w", err)
		}
		if message.Reason != "compiler-artifact" || !slices.Contains(message.Target.CrateTypes, "cdylib") {
			continue
		}
		for _, name := range message.Filenames {
			if strings.HasSuffix(name, ".wasm") {
				built = name
			}
		}
	}
}
