package examples

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/gleaner-dev/gleaner/policies/wasm"
	"github.com/gleaner-dev/gleaner/test/npm"
)

// maxConfigMap is the maximum size of a ConfigMap's data.
const maxConfigMap = 1 << 20

// exampleFolder returns the folder of an example.
func exampleFolder(name string) string { return filepath.Join("..", "..", "examples", name) }

// goExamples are the examples with a module in Go.
var goExamples = []string{"backup-before-delete", "bucket-finalizer", "drain-before-delete"}

// npmExamples are the examples with a module that npm builds.
var npmExamples = []string{"assemblyscript"}

// module is a module built from source.
type module struct {
	code, zipped []byte
	digest       string
}

// builtModules caches the modules of this test binary.
var builtModules struct {
	mu   sync.Mutex // covers made
	made map[string]module
}

// build builds an example as described in its README.
func build(t *testing.T, name string) module {
	t.Helper()
	builtModules.mu.Lock()
	defer builtModules.mu.Unlock()
	if m, ok := builtModules.made[name]; ok {
		return m
	}
	target := filepath.Join(t.TempDir(), "module.wasm")
	if slices.Contains(npmExamples, name) {
		target = filepath.Join(npm.Run(t, exampleFolder(name), "build"), "module.wasm")
	} else if err := compile(t.Context(), exampleFolder(name), target); err != nil {
		t.Fatal(err)
	}
	m, err := readModule(target)
	if err != nil {
		t.Fatal(err)
	}
	if builtModules.made == nil {
		builtModules.made = map[string]module{}
	}
	builtModules.made[name] = m
	return m
}

func compile(ctx context.Context, source, target string) error {
	cmd := exec.CommandContext(ctx, "go", "build", "-buildmode=c-shared", "-trimpath", "-gcflags=all=-l", "-ldflags=-s -w", "-o", target, ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off", "GOFLAGS=", "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s: %w\n%s", source, err, out)
	}
	return nil
}

func readModule(file string) (module, error) {
	code, err := os.ReadFile(file)
	if err != nil {
		return module{}, err
	}
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return module{}, err
	}
	if _, err := w.Write(code); err != nil {
		return module{}, err
	}
	if err := w.Close(); err != nil {
		return module{}, err
	}
	sum := sha256.Sum256(code)
	return module{code: code, zipped: zipped.Bytes(), digest: hex.EncodeToString(sum[:])}, nil
}

// compilePolicy compiles a module as the operator does.
func compilePolicy(t *testing.T, name string) *wasm.Policy {
	t.Helper()
	engine, err := wasm.New(wasm.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(engine.Close)
	loaded, err := engine.Load(t.Context(), build(t, name).code)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(loaded.Close)
	policy, err := wasm.NewPolicy(t.Context(), loaded, wasm.Options{Name: name, Instances: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(policy.Close)
	return policy
}
