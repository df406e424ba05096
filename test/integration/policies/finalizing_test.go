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

// finalizer applies a module in Rego and a Finalizer by the same name that has it
// asked about ConfigMaps, with what else its spec is to say.
func (w *world) finalizer(name, rules, spec string) *unstructured.Unstructured {
	w.Helper()
	w.module(name, rules)
	if !strings.Contains(spec, "needs:") {
		spec += "\nneeds: Reference"
	}
	return w.policy(fmt.Sprintf(`
kind: Finalizer
metadata: {name: %[1]s}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  module: {name: %[1]s}
  mode: Enforce
  retry: {initial: 1s, max: 1s}
%[2]s`, name, indent(spec)))
}

// seeing is what has a Finalizer of the test's namespace see its objects.
func (w *world) seeing() string {
	w.Helper()
	w.reader("configmaps")
	return "needs: Object\nserviceAccount: {name: reader}"
}

// module applies a module in Rego, and has the Finalizers that name it pin it as it is then.
func (w *world) module(name, rules string) {
	w.Helper()
	text := "package gleaner\n\n" + rules
	w.policy(fmt.Sprintf(`
kind: PolicyModule
metadata: {name: %s}
spec: {rego: {inline: %s}}`, name, quoted(text)))
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

// entry is the finalizer of a Finalizer of the test's namespace.
func (w *world) entry(name string) string { return w.ns + ".gleaner.dev/" + name }

// carrying creates a ConfigMap that has finalizers.
func (w *world) carrying(name string, entries ...string) *unstructured.Unstructured {
	w.Helper()
	text, err := yaml.Marshal(map[string]any{"kind": "ConfigMap", "metadata": map[string]any{"name": name, "finalizers": entries}})
	if err != nil {
		w.Fatal(err)
	}
	return w.apply(string(text))
}

// carries waits until an object has finalizers, and no others.
func (w *world) carries(o *unstructured.Unstructured, entries ...string) {
	w.Helper()
	w.eventually(func() error {
		if got := w.get(o).GetFinalizers(); !slices.Equal(got, entries) {
			return errorf("%s has finalizers %v; %s", o.GetName(), got, w.decisions(o))
		}
		return nil
	})
}

// status waits until a number in the status of a finalizer is as wanted.
func (w *world) status(o *unstructured.Unstructured, field string, want int64) {
	w.Helper()
	w.eventually(func() error {
		if got, _, _ := unstructured.NestedInt64(w.get(o).Object, "status", field); got != want {
			return errorf("%s of %s is %d", field, o.GetName(), got)
		}
		return nil
	})
}

// stuckSomehow waits until an object is gone, or the status of a finalizer says why not.
func (w *world) stuckSomehow(finalizer, o *unstructured.Unstructured) (reason string) {
	w.Helper()
	w.eventually(func() error {
		list, _, _ := unstructured.NestedSlice(w.get(finalizer).Object, "status", "stuck")
		for _, item := range list {
			if s, _ := item.(map[string]any); s["uid"] == string(o.GetUID()) {
				reason, _ = s["reason"].(string)
				return nil
			}
		}
		if w.get(o).GetName() == "" {
			reason = "nothing: it is gone"
			return nil
		}
		return errorf("%s is neither gone nor stuck", o.GetName())
	})
	return reason
}

// stuck waits until the status of a finalizer says that an object is stuck.
func (w *world) stuck(finalizer, o *unstructured.Unstructured, reason, message string) map[string]any {
	w.Helper()
	var found map[string]any
	w.eventually(func() error {
		list, _, _ := unstructured.NestedSlice(w.get(finalizer).Object, "status", "stuck")
		for _, item := range list {
			s, _ := item.(map[string]any)
			if s["uid"] == string(o.GetUID()) && s["reason"] == reason && strings.Contains(fmt.Sprint(s["message"]), message) {
				found = s
				return nil
			}
		}
		return errorf("stuck: %v; %s", list, w.decisions(o))
	})
	return found
}

// kept waits for a decision that keeps an object which is being deleted.
func (w *world) kept(o *unstructured.Unstructured, reason string) {
	w.Helper()
	w.decided(o, reason)
	if live := w.get(o); live.GetName() == "" {
		w.Fatalf("%s is gone; %s", o.GetName(), w.decisions(o))
	}
}
