package demo

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// regoModule keeps ConfigMaps with a label.
const regoModule = `package gleaner

collect := {"decision": "Orphan", "reason": "it has keep=true"} if {
  input.object.metadata.labels.keep == "true"
} else := {"decision": "Abstain"}
`

// regoPolicyIn returns the module and its policy in a mode.
func regoPolicyIn(mode string) string {
	indented := strings.ReplaceAll("\n"+strings.TrimSuffix(regoModule, "\n"), "\n", "\n      ")
	indented = strings.ReplaceAll(indented, "\n      \n", "\n\n")
	return fmt.Sprintf(regoPolicy, mode, source.Digest([]source.File{{Data: []byte(regoModule)}}), indented)
}

const regoPolicy = `apiVersion: gleaner.dev/v1alpha1
kind: ClusterPolicyModule
metadata: {name: by-label}
spec:
  rego:
    inline: |%[3]s
---
apiVersion: gleaner.dev/v1alpha1
kind: ClusterGCPolicy
metadata: {name: by-label}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: by-label, digest: %[2]s}
  mode: %[1]s
`

// wasmPolicy keeps PersistentVolumeClaims with a label, by a Go module.
const wasmPolicy = `apiVersion: gleaner.dev/v1alpha1
kind: ClusterPolicyModule
metadata: {name: keep-data}
spec:
  wasm:
    configMap: {namespace: ` + namespace + `, name: keep-data, key: keep-data.wasm.gz}
---
apiVersion: gleaner.dev/v1alpha1
kind: ClusterGCPolicy
metadata: {name: keep-data}
spec:
  resources: [{apiGroups: [""], resources: [persistentvolumeclaims]}]
  module: {name: keep-data, digest: %s}
  mode: Enforce
`

// claimManifest is a PersistentVolumeClaim with an owner.
const claimManifest = `apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: %[1]s
  namespace: ` + namespace + `
  labels: {keep: "%[2]t"}
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: %[3]s, uid: %[4]s}]
spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
`

// configMapManifest is a ConfigMap with an owner.
const configMapManifest = `apiVersion: v1
kind: ConfigMap
metadata:
  name: %[1]s
  namespace: ` + namespace + `
  labels: {keep: "%[2]t"}
  ownerReferences: [{apiVersion: v1, kind: ConfigMap, name: %[3]s, uid: %[4]s}]
---
`

// monitor applies a policy in Monitor mode.
func (d *demoRun) monitor(ctx context.Context) error {
	if err := d.apply(ctx, regoPolicyIn("Monitor"), true); err != nil {
		return err
	}
	if err := d.waitReady(ctx, "by-label"); err != nil {
		return err
	}
	if err := d.createFamily(ctx, "monitored", configMapManifest); err != nil {
		return err
	}
	return d.until(ctx, func() error { return d.checkObject(ctx, "configmap", "monitored-kept", false) })
}

// enforce switches the policy to Enforce mode.
func (d *demoRun) enforce(ctx context.Context) error {
	if err := d.kubectl(ctx, "patch", "clustergcpolicy", "by-label", "--type=merge", "-p", `{"spec":{"mode":"Enforce"}}`); err != nil {
		return err
	}
	if err := d.waitReady(ctx, "by-label"); err != nil {
		return err
	}
	if err := d.createFamily(ctx, "enforced", configMapManifest); err != nil {
		return err
	}
	if err := d.until(ctx, func() error { return d.checkObject(ctx, "configmap", "enforced-dropped", false) }); err != nil {
		return err
	}
	return d.until(ctx, func() error { return d.checkObject(ctx, "configmap", "enforced-kept", true) })
}

// wasm demonstrates a policy with a WebAssembly module.
func (d *demoRun) wasm(ctx context.Context) error {
	digest, zipped, err := d.module(ctx, d.builds.keepData)
	if err != nil {
		return err
	}
	if err := d.kubectl(ctx, "create", "configmap", "keep-data", "-n", namespace, "--from-file=keep-data.wasm.gz="+zipped); err != nil {
		return err
	}
	if err := d.apply(ctx, fmt.Sprintf(wasmPolicy, digest), true); err != nil {
		return err
	}
	if err := d.waitReady(ctx, "keep-data"); err != nil {
		return err
	}
	if err := d.createFamily(ctx, "claimed", claimManifest); err != nil {
		return err
	}
	if err := d.until(ctx, func() error { return d.checkObject(ctx, "persistentvolumeclaim", "claimed-dropped", false) }); err != nil {
		return err
	}
	return d.until(ctx, func() error { return d.checkObject(ctx, "persistentvolumeclaim", "claimed-kept", true) })
}

// module waits for the build of a Go module, and returns its digest and compressed file.
func (d *demoRun) module(ctx context.Context, g *goModule) (digest, zipped string, err error) {
	printer.Fprintf(d.out, "$ %s\n", g)
	if err := g.wait(ctx, d.out); err != nil {
		return "", "", err
	}
	code, err := os.ReadFile(g.file)
	if err != nil {
		return "", "", err
	}
	var compressed bytes.Buffer
	w, err := gzip.NewWriterLevel(&compressed, gzip.BestCompression)
	if err != nil {
		return "", "", err
	}
	if _, err := w.Write(code); err != nil {
		return "", "", err
	}
	if err := w.Close(); err != nil {
		return "", "", err
	}
	sum := sha256.Sum256(code)
	printer.Fprintf(d.out, "  %d KiB, %d KiB compressed\n", len(code)>>10, compressed.Len()>>10)
	zipped = g.file + ".gz"
	return hex.EncodeToString(sum[:]), zipped, os.WriteFile(zipped, compressed.Bytes(), 0o600)
}

// waitReady waits until a policy is ready.
func (d *demoRun) waitReady(ctx context.Context, name string) error {
	err := d.until(ctx, func() error {
		text, err := d.Cluster.Kubectl(ctx, "get", "clustergcpolicy", name, "-o",
			`jsonpath={.metadata.generation}={.status.observedGeneration} {.status.conditions[?(@.type=="ModuleReady")].status}`)
		if err != nil {
			return err
		}
		versions, ready, _ := strings.Cut(strings.TrimSpace(text), " ")
		if now, seen, _ := strings.Cut(versions, "="); now != seen || ready != "True" {
			return fmt.Errorf("policy %s is not ready", name)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return d.kubectl(ctx, "get", "clustergcpolicy", name)
}

// createFamily creates an owner with two dependents, one of which is to be kept, and deletes the
// owner.
func (d *demoRun) createFamily(ctx context.Context, owner, dependent string) error {
	if err := d.kubectl(ctx, "create", "configmap", owner, "-n", namespace); err != nil {
		return err
	}
	o, err := d.client.CoreV1().ConfigMaps(namespace).Get(ctx, owner, metav1.GetOptions{})
	if err != nil {
		return err
	}
	text := fmt.Sprintf(dependent, owner+"-kept", true, owner, o.UID) + fmt.Sprintf(dependent, owner+"-dropped", false, owner, o.UID)
	if err := d.apply(ctx, text, false); err != nil {
		return err
	}
	return d.kubectl(ctx, "delete", "configmap", owner, "-n", namespace)
}

// checkObject returns an error unless an object exists, without owners, or does not exist, as
// wanted.
func (d *demoRun) checkObject(ctx context.Context, kind, name string, wanted bool) error {
	var o metav1.Object
	var err error
	switch kind {
	case "configmap":
		o, err = d.client.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	default:
		o, err = d.client.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	}
	there := !apierrors.IsNotFound(err)
	if there && err != nil {
		return err
	}
	refs := len(o.GetOwnerReferences())
	if there != wanted || there && refs != 0 {
		return fmt.Errorf("%s %s %s", kind, name, stateOf(o, there))
	}
	return nil
}

// stateOf describes the state of an object.
func stateOf(o metav1.Object, exists bool) string {
	switch {
	case !exists:
		return "does not exist"
	case o.GetDeletionTimestamp() != nil:
		return "is terminating, with the finalizers " + strings.Join(o.GetFinalizers(), ", ")
	default:
		return fmt.Sprintf("exists and has %d owner references", len(o.GetOwnerReferences()))
	}
}

// apply applies a manifest, and optionally prints it.
func (d *demoRun) apply(ctx context.Context, text string, show bool) error {
	file, err := os.CreateTemp("", "gleaner-demo-*.yaml")
	if err != nil {
		return err
	}
	defer os.Remove(file.Name())
	if _, err := file.WriteString(text); err != nil {
		return err
	}
	if err := file.Close(); err != nil {
		return err
	}
	if show {
		for line := range strings.Lines(text) {
			printer.Fprintf(d.out, "  | %s\n", strings.TrimSuffix(line, "\n"))
		}
	}
	return d.kubectl(ctx, "apply", "-f", file.Name())
}
