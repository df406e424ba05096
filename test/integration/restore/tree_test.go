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

func TestRestore_TreeOfCustomResources(t *testing.T) {
	e := newEnv(t)
	archived := e.store(archive.Cause{}, e.Tree()...)
	e.Remove(archived[:1], archived...)
	out := e.restore("root/root", "-n", e.Namespace)
	e.Compare(archived)
	if !strings.Contains(out, "Restored 6 objects (Leaf.restore.example.com: 2, Middle.restore.example.com: 2, ConfigMap: 1, Root.restore.example.com: 1).") {
		t.Errorf("the report is\n%s", out)
	}
	// The built-in collector would delete what refers to owners that do not exist.
	probe := e.ConfigMap("probe", archived[0])
	e.Remove(nil, probe)
	e.Compare(archived)
}

func TestRestore_InterruptedAfterEachCreate(t *testing.T) {
	e := newEnv(t)
	archived := e.store(archive.Cause{}, e.Tree()...)
	for after := range len(archived) + 1 {
		if live := e.Read(archived[0]); live != nil {
			var current []*unstructured.Unstructured
			for _, o := range archived {
				current = append(current, e.Read(o))
			}
			e.Remove(current[:1], current...)
		}
		ctx, cancel := context.WithCancel(t.Context())
		out := &interrupting{word: "restored\n", after: after, cancel: cancel}
		text, code := e.runTo(ctx, out, "root/root", "-n", e.Namespace, "--yes")
		cancel()
		if after > 0 && after < len(archived) && (code != 1 || !strings.Contains(text, fmt.Sprintf("Interrupted after %d of 6 objects", after))) {
			t.Errorf("after %d: exit code %d\n%s", after, code, text)
		}
		text = e.restore("root/root", "-n", e.Namespace)
		if after > 0 && !strings.Contains(text, fmt.Sprintf("; %d restored before", after)) {
			t.Errorf("after %d, again:\n%s", after, text)
		}
		e.Compare(archived)
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
	e.DefineTypes("Root")
	root := e.Custom("Root", "root")
	root.Object["status"] = map[string]any{"phase": "Done", "items": []any{"a"}}
	if _, err := e.Of(root).UpdateStatus(t.Context(), root, updateOptions); err != nil {
		t.Fatal(err)
	}
	archived := e.store(archive.Cause{}, root)
	for args, want := range map[string]bool{"": false, "--restore-status": true} {
		e.Remove([]*unstructured.Unstructured{e.orArchived(archived[0])})
		e.restore(strings.Fields("root/root -n " + e.Namespace + " " + args)...)
		phase, _, _ := unstructured.NestedString(e.Read(root).Object, "status", "phase")
		if (phase == "Done") != want {
			t.Errorf("with %q, the phase is %q", args, phase)
		}
	}
	// An object that was restored before gets the status that it lacks.
	e.Remove([]*unstructured.Unstructured{e.orArchived(archived[0])})
	e.restore("root/root", "-n", e.Namespace)
	e.restore("root/root", "-n", e.Namespace, "--restore-status")
	if phase, _, _ := unstructured.NestedString(e.Read(root).Object, "status", "phase"); phase != "Done" {
		t.Errorf("restored in two runs, the phase is %q", phase)
	}
}

// orArchived returns what is at the place of an object, or the object.
func (e *env) orArchived(o *unstructured.Unstructured) *unstructured.Unstructured {
	if live := e.Read(o); live != nil {
		return live
	}
	return o
}

func TestRestore_DefinitionWithItsObjects(t *testing.T) {
	e := newEnv(t)
	e.DefineTypes("Gone")
	object := e.Custom("Gone", "object")
	crd := &unstructured.Unstructured{}
	crd.SetAPIVersion("apiextensions.k8s.io/v1")
	crd.SetKind("CustomResourceDefinition")
	crd.SetName("gones.restore.example.com")
	archived := e.store(archive.Cause{Root: e.Read(crd).GetUID()}, crd, object)
	e.Remove(archived[:1])
	devtest.Eventually(t, timeout, func() error {
		out, code := e.run("gone/object", "-n", e.Namespace, "--dry-run=client")
		if code != 3 || !strings.Contains(out, "does not serve") {
			return fmt.Errorf("an object whose type is gone: exit code %d\n%s", code, out)
		}
		return nil
	})
	e.restore("--cascade", string(archived[0].GetUID()))
	e.Compare(archived[1:])
}
