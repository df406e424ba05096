package demo

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/gleaner-dev/gleaner/devcluster/s3server"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
)

// bucketExample is the directory of the last example of the demo, in a checkout.
var bucketExample = filepath.Join("examples", "bucket-finalizer")

// overlay adapts the example's resources to the local S3 server: its address, credentials and
// certificate.
const overlay = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [../deploy]
secretGenerator:
- {name: bucket-credentials, namespace: gleaner-examples, literals: [accessKeyID=%[2]s, secretAccessKey=%[3]s]}
configMapGenerator:
- {name: bucket-ca, namespace: gleaner-examples, files: [ca.crt]}
generatorOptions: {disableNameSuffixHash: true}
patches:
- target: {kind: Role}
  patch: |
    - {op: add, path: /rules/-, value: {apiGroups: [""], resources: [configmaps], resourceNames: [bucket-ca], verbs: [get]}}
- target: {kind: ClusterFinalizer}
  patch: |
    - {op: add, path: /spec/module/digest, value: %[4]s}
    - {op: replace, path: /spec/settings/endpoint, value: %[1]s}
    - {op: replace, path: /spec/grants/http/0/url, value: %[1]s/*}
    - {op: add, path: /spec/grants/http/0/addresses, value: [127.0.0.1/32]}
    - {op: add, path: /spec/grants/http/0/ca, value: {configMapKeyRef: {namespace: gleaner-examples, name: bucket-ca, key: ca.crt}}}
`

// bucket demonstrates a finalizer that deletes an S3 bucket.
func (d *demoRun) bucket(ctx context.Context) error {
	dir, err := os.MkdirTemp("", "gleaner-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	objects := filepath.Join(dir, "objects")
	if err := os.Mkdir(objects, 0o700); err != nil {
		return err
	}
	if err := d.builds.storage.wait(ctx, d.out); err != nil {
		return err
	}
	storage, err := s3server.Start(ctx, objects, d.out)
	if err != nil {
		return err
	}
	return errors.Join(d.bucketOn(ctx, storage, dir), storage.Close())
}

func (d *demoRun) bucketOn(ctx context.Context, storage *s3server.Server, dir string) error {
	for _, path := range []string{"/photos", "/photos/cat.jpg", "/photos/2026/dog.jpg"} {
		if err := d.request(ctx, storage, http.MethodPut, path, http.StatusOK); err != nil {
			return err
		}
	}
	if err := d.install(ctx, storage, dir); err != nil {
		return err
	}
	const wait = "--timeout=60s"
	if err := d.kubectl(ctx, "wait", "--for=condition=Attached", "clusterfinalizer/bucket", wait); err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(bucketExample, "bucket.yaml"))
	if err != nil {
		return err
	}
	if err := d.apply(ctx, strings.ReplaceAll(string(text), "namespace: default", "namespace: "+namespace), true); err != nil {
		return err
	}
	if err := d.until(ctx, func() error {
		text, err := d.Cluster.Kubectl(ctx, "get", "bucket", "photos", "-n", namespace, "-o", "jsonpath={.metadata.finalizers}")
		if err == nil && !strings.Contains(text, "example.com/bucket") {
			err = fmt.Errorf("the Bucket does not have the finalizer yet: %s", text)
		}
		return err
	}); err != nil {
		return err
	}
	if err := d.kubectl(ctx, "delete", "bucket", "photos", "-n", namespace, wait); err != nil {
		return err
	}
	d.printRecords()
	return d.request(ctx, storage, http.MethodGet, "/photos?list-type=2", http.StatusNotFound)
}

// request sends a request to the S3 server, and prints it.
func (d *demoRun) request(ctx context.Context, storage *s3server.Server, method, path string, want int) error {
	response, err := storage.Request(ctx, method, path, "")
	if err != nil {
		return err
	}
	printer.Fprintf(d.out, "  storage: %s %s: %d\n", method, path, response.Status)
	if response.Status != want {
		return fmt.Errorf("%s %s: got status %d, want %d: %s", method, path, response.Status, want, response.Body)
	}
	return nil
}

// install builds the module and applies the example's resources.
func (d *demoRun) install(ctx context.Context, storage *s3server.Server, dir string) error {
	deploy, local := filepath.Join(dir, "deploy"), filepath.Join(dir, "local")
	if err := os.CopyFS(deploy, os.DirFS(filepath.Join(bucketExample, "deploy"))); err != nil {
		return err
	}
	digest, zipped, err := d.module(ctx, d.builds.bucket)
	if err != nil {
		return err
	}
	if err := os.Rename(zipped, filepath.Join(deploy, "module.wasm.gz")); err != nil {
		return err
	}
	if err := os.Mkdir(local, 0o700); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"ca.crt":             string(storage.CA),
		"kustomization.yaml": fmt.Sprintf(overlay, storage.URL, storage.AccessKey, storage.SecretKey, digest),
	} {
		if err := os.WriteFile(filepath.Join(local, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if err := d.show(filepath.Join(bucketExample, "deploy", "finalizer.yaml")); err != nil {
		return err
	}
	return d.kubectl(ctx, "apply", "--server-side", "-k", local)
}

// show prints a file.
func (d *demoRun) show(name string) error {
	text, err := os.ReadFile(name)
	for line := range strings.Lines(string(text)) {
		printer.Fprintf(d.out, "  | %s\n", strings.TrimSuffix(line, "\n"))
	}
	return err
}
