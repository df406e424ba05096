package restore

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/archive"
)

const definition = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: %[1]ss.restore.example.com}
spec:
  group: restore.example.com
  scope: Namespaced
  names: {kind: %[2]s, plural: %[1]ss, singular: %[1]s}
  versions:
  - name: v1
    served: true
    storage: true
    subresources: {status: {}}
    schema: {openAPIV3Schema: {type: object, properties: {
      spec: {type: object, x-kubernetes-preserve-unknown-fields: true}, status: {type: object, x-kubernetes-preserve-unknown-fields: true}}}}
`

// custom creates a custom resource, and its type if it does not exist.
func (e *env) custom(kind, name string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	e.Helper()
	return e.create(fmt.Sprintf("{apiVersion: restore.example.com/v1, kind: %s, metadata: {name: %s, labels: {l: v}, annotations: {note: text}}, spec: {size: 3, list: [a, {b: c}]}}", kind, name), owners...)
}

func (e *env) defineTypes(kinds ...string) {
	e.Helper()
	for _, kind := range kinds {
		crd := &unstructured.Unstructured{}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind("CustomResourceDefinition")
		crd.SetName(strings.ToLower(kind) + "s.restore.example.com")
		if e.read(crd) == nil {
			e.create(fmt.Sprintf(definition, strings.ToLower(kind), kind))
		}
	}
}

// tree creates three levels of custom resources, and a dependent with two owners.
func (e *env) tree() (all []*unstructured.Unstructured) {
	e.Helper()
	e.defineTypes("Root", "Middle", "Leaf")
	root := e.custom("Root", "root")
	left, right := e.custom("Middle", "left", root), e.custom("Middle", "right", root)
	shared := e.custom("Leaf", "shared", left, right)
	return []*unstructured.Unstructured{root, left, right, shared, e.custom("Leaf", "leaf", left), e.configMap("settings", right)}
}

func TestRestore_TreeOfCustomResources(t *testing.T) {
	e := newEnv(t)
	archived := e.store(archive.Cause{}, e.tree()...)
	e.remove(archived[:1], archived...)
	out := e.restore("root/root", "-n", e.namespace)
	e.compare(archived)
	if !strings.Contains(out, "Restored 6 objects (Leaf.restore.example.com: 2, Middle.restore.example.com: 2, ConfigMap: 1, Root.restore.example.com: 1).") {
		t.Errorf("the report is\n%s", out)
	}
	// The built-in collector would delete what refers to owners that do not exist.
	probe := e.configMap("probe", archived[0])
	e.remove(nil, probe)
	e.compare(archived)
}

func TestRestore_InterruptedAfterEachCreate(t *testing.T) {
	e := newEnv(t)
	archived := e.store(archive.Cause{}, e.tree()...)
	for after := range len(archived) + 1 {
		if live := e.read(archived[0]); live != nil {
			var current []*unstructured.Unstructured
			for _, o := range archived {
				current = append(current, e.read(o))
			}
			e.remove(current[:1], current...)
		}
		ctx, cancel := context.WithCancel(t.Context())
		out := &interrupting{word: "restored\n", after: after, cancel: cancel}
		text, code := e.runTo(ctx, out, "root/root", "-n", e.namespace, "--yes")
		cancel()
		if after > 0 && after < len(archived) && (code != 1 || !strings.Contains(text, fmt.Sprintf("Interrupted after %d of 6 objects", after))) {
			t.Errorf("after %d: exit code %d\n%s", after, code, text)
		}
		text = e.restore("root/root", "-n", e.namespace)
		if after > 0 && !strings.Contains(text, fmt.Sprintf("; %d restored before", after)) {
			t.Errorf("after %d, again:\n%s", after, text)
		}
		e.compare(archived)
	}
}

// interrupting is an output that calls cancel after it was written a word for some times.
type interrupting struct {
	bytes.Buffer
	word   string
	after  int
	cancel func()
}

func (i *interrupting) Write(data []byte) (int, error) {
	n, err := i.Buffer.Write(data)
	if i.after > 0 && strings.Count(i.String(), i.word) >= i.after {
		i.cancel()
	}
	return n, err
}

func TestRestore_StatusOfCustomResources(t *testing.T) {
	e := newEnv(t)
	e.defineTypes("Root")
	root := e.custom("Root", "root")
	root.Object["status"] = map[string]any{"phase": "Done", "items": []any{"a"}}
	if _, err := e.of(root).UpdateStatus(t.Context(), root, updateOptions); err != nil {
		t.Fatal(err)
	}
	archived := e.store(archive.Cause{}, root)
	for args, want := range map[string]bool{"": false, "--restore-status": true} {
		e.remove([]*unstructured.Unstructured{e.orArchived(archived[0])})
		e.restore(strings.Fields("root/root -n " + e.namespace + " " + args)...)
		phase, _, _ := unstructured.NestedString(e.read(root).Object, "status", "phase")
		if (phase == "Done") != want {
			t.Errorf("with %q, the phase is %q", args, phase)
		}
	}
	// An object that was restored before gets the status that it lacks.
	e.remove([]*unstructured.Unstructured{e.orArchived(archived[0])})
	e.restore("root/root", "-n", e.namespace)
	e.restore("root/root", "-n", e.namespace, "--restore-status")
	if phase, _, _ := unstructured.NestedString(e.read(root).Object, "status", "phase"); phase != "Done" {
		t.Errorf("restored in two runs, the phase is %q", phase)
	}
}

// orArchived returns what is at the place of an object, or the object.
func (e *env) orArchived(o *unstructured.Unstructured) *unstructured.Unstructured {
	if live := e.read(o); live != nil {
		return live
	}
	return o
}

func TestRestore_DefinitionWithItsObjects(t *testing.T) {
	e := newEnv(t)
	e.defineTypes("Gone")
	object := e.custom("Gone", "object")
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("gones.restore.example.com")
	archived := e.store(archive.Cause{Root: e.read(crd).GetUID()}, crd, object)
	e.remove(archived[:1])
	devtest.Eventually(t, timeout, func() error {
		out, code := e.run("gone/object", "-n", e.namespace, "--dry-run=client")
		if code != 3 || !strings.Contains(out, "does not serve") {
			return fmt.Errorf("an object whose type is gone: exit code %d\n%s", code, out)
		}
		return nil
	})
	e.restore("--cascade", string(archived[0].GetUID()))
	e.compare(archived[1:])
}
