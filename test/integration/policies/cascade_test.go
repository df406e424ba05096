package policies

import (
	"fmt"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// waitForCascade waits for the one event about the cascade of an object.
func (w *env) waitForCascade(root *unstructured.Unstructured, message string) {
	w.Helper()
	w.eventually(func() error {
		list, err := w.objects.Resource(resources["Event"]).Namespace(w.ns).List(w.Context(), metav1.ListOptions{FieldSelector: "involvedObject.uid=" + string(root.GetUID())})
		if err != nil {
			return err
		}
		var found []string
		for _, e := range list.Items {
			if reason, _, _ := unstructured.NestedString(e.Object, "reason"); strings.HasPrefix(reason, "Cascade") {
				text, _, _ := unstructured.NestedString(e.Object, "message")
				found = append(found, reason+": "+text)
			}
		}
		if len(found) != 1 || !strings.HasPrefix(found[0], "CascadeCompleted: cascade completed in ") || !strings.HasSuffix(found[0], message) {
			inProgress, completed := w.collector.Cascades()
			return fmt.Errorf("events: %q; in progress: %+v, completed: %+v", found, inProgress, completed)
		}
		return nil
	})
}

func TestCascade_CompletionIsReportedOnce(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(strings.ReplaceAll(deletes, "NAME", "a")) // without any, companion mode writes nothing
	root := w.createObject("Secret", "root", nil)
	first, second := w.createConfigMap("first", root), w.createConfigMap("second", root)
	leaf := w.createConfigMap("leaf", first)
	w.delete(root)
	w.waitForDeletion(first, second, leaf)
	w.waitForCascade(root, ": 3 deleted, 0 kept")
	if inProgress, completed := w.collector.Cascades(); len(completed) == 0 {
		t.Errorf("%d in progress, and none has completed", len(inProgress))
	}
}

func TestCascade_ThatOrphansReportsWhatIsKept(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(strings.ReplaceAll(deletes, "NAME", "a")) // without any, companion mode writes nothing
	root := w.createObject("Secret", "root", nil)
	kept := w.createConfigMap("kept", root)
	w.deleteWithPolicy(root, metav1.DeletePropagationOrphan)
	w.waitForDeletion(root)
	w.waitForNoOwners(kept)
	w.waitForCascade(root, ": 0 deleted, 1 kept")
}

func TestCascade_InTheForegroundIsReportedWhenTheRootIsGone(t *testing.T) {
	w := newEnv(t)
	w.applyPolicy(strings.ReplaceAll(deletes, "NAME", "a")) // without any, companion mode writes nothing
	root := w.createObject("Secret", "root", nil)
	kept := w.createConfigMap("kept", root, w.createObject("Secret", "other", nil))
	gone := w.createConfigMap("gone", root)
	w.deleteWithPolicy(root, metav1.DeletePropagationForeground)
	w.waitForDeletion(root, gone)
	w.waitForCascade(root, ": 1 deleted, 1 kept")
	if len(w.get(kept).GetOwnerReferences()) != 1 {
		t.Error("the other owner reference is gone, too")
	}
}
