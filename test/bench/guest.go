package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
)

// goModule is the go.mod of a module built with the SDK of this checkout.
const goModule = `module bench

go 1.24

require (
	github.com/gleaner-dev/gleaner/hostabi v0.0.0
	github.com/gleaner-dev/gleaner/sdk/go v0.0.0
)

replace (
	github.com/gleaner-dev/gleaner/hostabi => %[1]s/hostabi
	github.com/gleaner-dev/gleaner/sdk/go => %[1]s/sdk/go
)
`

// The compilers of modules.
const (
	stockGo = "go"
	tinyGo  = "tinygo"
)

// wasmModule builds a module from Go with a compiler, as users do with the gleaner binary, and puts
// it into a ConfigMap.
func wasmModule(ctx context.Context, c client.Client, binary, compiler, name, source string) (*v1alpha1.ClusterPolicyModule, error) {
	zipped, err := buildModule(ctx, binary, compiler, source)
	if err != nil {
		return nil, fmt.Errorf("build module %s: %w", name, err)
	}
	code, err := decompressed(zipped)
	if err != nil {
		return nil, fmt.Errorf("decompress module %s: %w", name, err)
	}
	holder := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: name},
		BinaryData: map[string][]byte{"module": zipped},
	}
	if err := c.Create(ctx, holder); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	m := &v1alpha1.ClusterPolicyModule{ObjectMeta: metav1.ObjectMeta{Name: name}}
	m.Spec.Wasm = &v1alpha1.WasmSource{ConfigMap: &v1alpha1.ConfigMapKeyReference{Namespace: holder.Namespace, Name: holder.Name, Key: "module"}}
	digest := sha256.Sum256(code)
	m.Spec.SHA256 = hex.EncodeToString(digest[:])
	return m, nil
}

// buildModule builds a source file.
func buildModule(ctx context.Context, binary, compiler, source string) ([]byte, error) {
	folder, err := os.MkdirTemp("", "gleaner-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(folder)
	checkout, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for name, text := range map[string]string{"main.go": source, "go.mod": fmt.Sprintf(goModule, checkout)} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	file := filepath.Join(folder, "bench.wasm.gz")
	build := exec.CommandContext(ctx, binary, "module", "build", folder, "--output", file)
	if compiler == tinyGo {
		build.Args = append(build.Args, "--tinygo")
	}
	build.Env = append(os.Environ(), "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return os.ReadFile(file)
}

func decompressed(zipped []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		return nil, err
	}
	defer r.Close()
	return io.ReadAll(r)
}
