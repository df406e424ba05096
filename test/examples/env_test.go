package examples

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// env is a control plane with Gleaner, and a copy of an example.
type env struct {
	*testing.T
	cluster *devcluster.Cluster
	dir     string // of the copy
}

// newEnv copies an example, and replaces text that differs
// for each test, such as a port.
func newEnv(t *testing.T, example string, changes ...string) *env {
	t.Helper()
	w := &env{T: t, cluster: sharedCluster(t), dir: t.TempDir()}
	replace := strings.NewReplacer(changes...)
	err := filepath.WalkDir(exampleFolder(example), func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".yaml") {
			return err
		}
		relative, err := filepath.Rel(exampleFolder(example), name)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		w.write(relative, []byte(replace.Replace(string(text))))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *env) write(name string, data []byte) {
	w.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		w.Fatal(err)
	}
}

func (w *env) kubectl(args ...string) string {
	w.Helper()
	out, err := w.cluster.Kubectl(w.Context(), args...)
	if err != nil {
		w.Fatal(err)
	}
	return out
}

func (w *env) eventually(ask func() error) {
	w.Helper()
	devtest.Eventually(w, timeout, ask)
}

// install applies a folder of the example with its module, and
// sets the module's digest in the finalizer, as described in the README.
func (w *env) install(example, at, finalizer, namespace string) {
	w.Helper()
	m := build(w.T, example)
	w.write("deploy/module.wasm.gz", m.zipped)
	w.kubectl("apply", "--server-side", "-k", filepath.Join(w.dir, at))
	w.kubectl("patch", finalizer, "-n", namespace, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"module":{"digest":%q}}}`, m.digest))
}

// waitForEnforced waits until a finalizer is enforced and attached.
func (w *env) waitForEnforced(args ...string) {
	w.Helper()
	w.eventually(func() error {
		text, err := w.cluster.Kubectl(w.Context(), append([]string{"get", "-o", "json"}, args...)...)
		if err != nil {
			return err
		}
		var f struct {
			Metadata metav1.ObjectMeta
			Status   struct {
				ObservedGeneration int64
				Conditions         []metav1.Condition
			}
		}
		if err := json.Unmarshal([]byte(text), &f); err != nil {
			return err
		}
		holds := map[string]bool{}
		for _, c := range f.Status.Conditions {
			holds[c.Type] = c.Status == metav1.ConditionTrue
		}
		if f.Status.ObservedGeneration != f.Metadata.Generation || !holds["Accepted"] || !holds["ModuleReady"] || !holds["Enforcing"] {
			return fmt.Errorf("%v is not enforced: %+v", args, f.Status)
		}
		return nil
	})
}

// waitForFinalizer waits until an object has a finalizer.
func (w *env) waitForFinalizer(finalizer string, args ...string) {
	w.Helper()
	w.eventually(func() error {
		text, err := w.cluster.Kubectl(w.Context(), append([]string{"get", "-o", "jsonpath={.metadata.finalizers}"}, args...)...)
		if err != nil {
			return err
		}
		if !strings.Contains(text, `"`+finalizer+`"`) {
			return fmt.Errorf("%v has finalizers %q", args, text)
		}
		return nil
	})
}

// waitForDeletion waits until an object does not exist any more.
func (w *env) waitForDeletion(args ...string) {
	w.Helper()
	w.eventually(func() error {
		text, err := w.cluster.Kubectl(w.Context(), append([]string{"get", "--ignore-not-found", "-o", "yaml"}, args...)...)
		if err == nil && strings.TrimSpace(text) != "" {
			err = fmt.Errorf("%v still exists: %s\n%s", args, text, w.describeFinalizers())
		}
		return err
	})
}

// describeFinalizers returns the status of all finalizers.
func (w *env) describeFinalizers() string {
	text, err := w.cluster.Kubectl(w.Context(), "get", "finalizers.gleaner.dev,clusterfinalizers.gleaner.dev", "-A", "-o", "jsonpath={range .items[*]}{.metadata.name}: {.status}{\"\\n\"}{end}")
	if err != nil {
		return err.Error()
	}
	return text
}
