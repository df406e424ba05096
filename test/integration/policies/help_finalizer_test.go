package policies

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/test/pins"
)

// applyFinalizer applies a Rego module and a Finalizer for ConfigMaps of the same name that uses
// it, with further fields of its spec.
func (w *env) applyFinalizer(name, rules, spec string) *unstructured.Unstructured {
	w.Helper()
	w.applyModule(name, rules)
	if !strings.Contains(spec, "needs:") {
		spec += "\nneeds: Reference"
	}
	return w.applyPolicy(fmt.Sprintf(`
kind: Finalizer
metadata: {name: %[1]s}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: %[1]s}
  mode: Enforce
  retry: {initial: 1s, max: 1s}
%[2]s`, name, indent(spec)))
}

// readerSpec allows a Finalizer of the test's namespace to read its objects.
func (w *env) readerSpec() string {
	w.Helper()
	w.createReader("configmaps")
	return "needs: Object\nserviceAccount: {name: reader}"
}

// applyModule applies a Rego module, and pins its content in the Finalizers that use it.
func (w *env) applyModule(name, rules string) {
	w.Helper()
	text := "package gleaner\n\n" + rules
	w.applyPolicy(fmt.Sprintf(`
kind: PolicyModule
metadata: {name: %s}
spec: {rego: {inline: %s}}`, name, quoteJSON(text)))
	list, err := w.objects.Resource(resources["Finalizer"]).Namespace(w.ns).List(w.Context(), metav1.ListOptions{})
	if err != nil {
		w.Fatal(err)
	}
	for i := range list.Items {
		f := &list.Items[i]
		if module, _, _ := unstructured.NestedString(f.Object, "spec", "module", "name"); module == name {
			w.patch(f, `{"spec": {"module": {"digest": "`+pins.Of(text)+`"}}}`)
		}
	}
}

func indent(text string) string {
	return "  " + strings.ReplaceAll(strings.Trim(text, "\n"), "\n", "\n  ")
}

// finalizerName returns the finalizer name of a Finalizer in the test's namespace.
func (w *env) finalizerName(name string) string { return w.ns + ".gleaner.dev/" + name }

// createWithFinalizers creates a ConfigMap with finalizers.
func (w *env) createWithFinalizers(name string, entries ...string) *unstructured.Unstructured {
	w.Helper()
	text, err := yaml.Marshal(map[string]any{"kind": "ConfigMap", "metadata": map[string]any{"name": name, "finalizers": entries}})
	if err != nil {
		w.Fatal(err)
	}
	return w.apply(string(text))
}

// waitForFinalizers waits until an object has exactly these finalizers.
func (w *env) waitForFinalizers(o *unstructured.Unstructured, entries ...string) {
	w.Helper()
	w.eventually(func() error {
		if got := w.get(o).GetFinalizers(); !slices.Equal(got, entries) {
			return errorf("%s has finalizers %v; %s", o.GetName(), got, w.describeDecisions(o))
		}
		return nil
	})
}

// waitForStatus waits for a number in the status of a finalizer.
func (w *env) waitForStatus(o *unstructured.Unstructured, field string, want int64) {
	w.Helper()
	w.eventually(func() error {
		if got, _, _ := unstructured.NestedInt64(w.get(o).Object, "status", field); got != want {
			return errorf("%s of %s is %d", field, o.GetName(), got)
		}
		return nil
	})
}

// waitForStuckOrDeleted waits until an object is gone, or reported as stuck in the status of a finalizer.
func (w *env) waitForStuckOrDeleted(finalizer, o *unstructured.Unstructured) (reason string) {
	w.Helper()
	w.eventually(func() error {
		list, _, _ := unstructured.NestedSlice(w.get(finalizer).Object, "status", "stalledObjects")
		for _, item := range list {
			if s, _ := item.(map[string]any); s["uid"] == string(o.GetUID()) {
				reason, _ = s["reason"].(string)
				return nil
			}
		}
		if w.get(o).GetName() == "" {
			reason = "none: object is gone"
			return nil
		}
		return errorf("%s is neither gone nor reported as stuck", o.GetName())
	})
	return reason
}

// waitForStuck waits until the status of a finalizer reports an object as stuck.
func (w *env) waitForStuck(finalizer, o *unstructured.Unstructured, reason, message string) map[string]any {
	w.Helper()
	var found map[string]any
	w.eventually(func() error {
		list, _, _ := unstructured.NestedSlice(w.get(finalizer).Object, "status", "stalledObjects")
		for _, item := range list {
			s, _ := item.(map[string]any)
			if s["uid"] == string(o.GetUID()) && s["reason"] == reason && strings.Contains(fmt.Sprint(s["message"]), message) {
				found = s
				return nil
			}
		}
		return errorf("stuck: %v; %s", list, w.describeDecisions(o))
	})
	return found
}

// expectBlocked waits for a decision that keeps an object during its deletion.
func (w *env) expectBlocked(o *unstructured.Unstructured, reason string) {
	w.Helper()
	w.waitForDecision(o, reason)
	if live := w.get(o); live.GetName() == "" {
		w.Fatalf("%s is gone; %s", o.GetName(), w.describeDecisions(o))
	}
}
