package main

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

const tinyGo = "tinygo"

// wasmModule builds a module from Go, and puts it into a ConfigMap.
func wasmModule(ctx context.Context, c client.Client, name, source string) (*v1alpha1.ClusterPolicyModule, error) {
	return wasmModuleBy(ctx, c, "go", name, source)
}

// wasmModuleBy is wasmModule with a compiler, which is "go" or tinyGo.
func wasmModuleBy(ctx context.Context, c client.Client, compiler, name, source string) (*v1alpha1.ClusterPolicyModule, error) {
	code, err := compileModule(ctx, compiler, source)
	if err != nil {
		return nil, fmt.Errorf("build module %s: %w", name, err)
	}
	zipped, err := compressed(code)
	if err != nil {
		return nil, fmt.Errorf("compress module %s: %w", name, err)
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

// compileModule compiles a source file.
func compileModule(ctx context.Context, compiler, source string) ([]byte, error) {
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
	file := filepath.Join(folder, "bench.wasm")
	build := exec.CommandContext(ctx, "go", "build", "-buildmode=c-shared", "-ldflags=-s -w", "-o", file, ".")
	if compiler == tinyGo {
		build = exec.CommandContext(ctx, tinyGo, "build", "-target=wasip1", "-buildmode=c-shared", "-no-debug", "-o", file, ".")
	}
	build.Dir = folder
	build.Env = append(os.Environ(), "GOOS=wasip1", "GOARCH=wasm", "GOWORK=off", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	return os.ReadFile(file)
}

func compressed(code []byte) ([]byte, error) {
	var zipped bytes.Buffer
	w, err := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(code); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return zipped.Bytes(), nil
}
