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

// world is a control plane with Gleaner, and a copy of an example.
type world struct {
	*testing.T
	cluster *devcluster.Cluster
	dir     string // of the copy
}

// newWorld copies an example. Its files are changed where they name what is
// another for each test, such as a port.
func newWorld(t *testing.T, example string, changes ...string) *world {
	t.Helper()
	w := &world{T: t, cluster: operated(t), dir: t.TempDir()}
	replace := strings.NewReplacer(changes...)
	err := filepath.WalkDir(folder(example), func(name string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, ".yaml") {
			return err
		}
		relative, err := filepath.Rel(folder(example), name)
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

func (w *world) write(name string, data []byte) {
	w.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		w.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		w.Fatal(err)
	}
}

func (w *world) kubectl(args ...string) string {
	w.Helper()
	out, err := w.cluster.Kubectl(w.Context(), args...)
	if err != nil {
		w.Fatal(err)
	}
	return out
}

func (w *world) eventually(ask func() error) {
	w.Helper()
	devtest.Eventually(w, patience, ask)
}

// install applies a folder of the example, with the module that was built for it, and
// writes that module's digest into the finalizer, as the README says.
func (w *world) install(example, at, finalizer, namespace string) {
	w.Helper()
	m := build(w.T, example)
	w.write("deploy/module.wasm.gz", m.zipped)
	w.kubectl("apply", "--server-side", "-k", filepath.Join(w.dir, at))
	w.kubectl("patch", finalizer, "-n", namespace, "--type=merge", "-p", fmt.Sprintf(`{"spec":{"module":{"digest":%q}}}`, m.digest))
}

// enforced waits until a finalizer is, and is put on objects.
func (w *world) enforced(args ...string) {
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
			return fmt.Errorf("%v is not in force: %+v", args, f.Status)
		}
		return nil
	})
}

// has waits until an object has a finalizer.
func (w *world) has(finalizer string, args ...string) {
	w.Helper()
	w.eventually(func() error {
		text, err := w.cluster.Kubectl(w.Context(), append([]string{"get", "-o", "jsonpath={.metadata.finalizers}"}, args...)...)
		if err != nil {
			return err
		}
		if !strings.Contains(text, `"`+finalizer+`"`) {
			return fmt.Errorf("%v has the finalizers %q", args, text)
		}
		return nil
	})
}

// gone waits until an object is.
func (w *world) gone(args ...string) {
	w.Helper()
	w.eventually(func() error {
		text, err := w.cluster.Kubectl(w.Context(), append([]string{"get", "--ignore-not-found", "-o", "yaml"}, args...)...)
		if err == nil && strings.TrimSpace(text) != "" {
			err = fmt.Errorf("%v is still there: %s\n%s", args, text, w.finalizers())
		}
		return err
	})
}

// finalizers tells what the finalizers say of themselves.
func (w *world) finalizers() string {
	text, err := w.cluster.Kubectl(w.Context(), "get", "finalizers.gleaner.dev,clusterfinalizers.gleaner.dev", "-A", "-o", "jsonpath={range .items[*]}{.metadata.name}: {.status}{\"\\n\"}{end}")
	if err != nil {
		return err.Error()
	}
	return text
}
