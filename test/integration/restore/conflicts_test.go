package restore

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/archive"
)

var updateOptions = metav1.UpdateOptions{}

func TestRestore_ConflictsAreListedBeforeAnythingIsWritten(t *testing.T) {
	e := newEnv(t)
	root := e.ConfigMap("root")
	other, taken := e.ConfigMap("other", root), e.ConfigMap("taken", root)
	archived := e.store(archive.Cause{}, root, other, taken)
	e.Remove([]*unstructured.Unstructured{root}, other, taken)
	now := e.ConfigMap("taken")
	out, code := e.run("configmap/root", "-n", e.Namespace, "--yes")
	if code != 3 || !strings.Contains(out, "ConfigMap/taken exists already, with UID "+string(now.GetUID())) {
		t.Errorf("exit code %d\n%s", code, out)
	}
	if e.Read(root) != nil || e.Read(other) != nil {
		t.Error("something was written")
	}
	e.Remove([]*unstructured.Unstructured{now})
	e.restore("configmap/root", "-n", e.Namespace)
	e.Compare(archived)
}

func TestRestore_MissingOwnersNeedDropOwners(t *testing.T) {
	e := newEnv(t)
	root := e.ConfigMap("root")
	dependent := e.ConfigMap("dependent", root)
	e.store(archive.Cause{}, dependent)
	e.Remove([]*unstructured.Unstructured{root}, dependent)
	out, code := e.run("configmap/dependent", "-n", e.Namespace, "--yes")
	if code != 3 || !strings.Contains(out, "use --drop-owners") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	e.restore("configmap/dependent", "-n", e.Namespace, "--drop-owners")
	if live := e.Read(dependent); live == nil || len(live.GetOwnerReferences()) != 0 {
		t.Errorf("restored: %v", live)
	}
}

func TestRestore_ObjectsThatAreBeingDeletedHaveToBeWaitedFor(t *testing.T) {
	e := newEnv(t)
	held := e.Create("{apiVersion: v1, kind: ConfigMap, metadata: {name: held, finalizers: [example.com/hold]}}")
	e.store(archive.Cause{}, held)
	if err := e.Of(held).Delete(t.Context(), "held", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	out, code := e.run("configmap/held", "-n", e.Namespace, "--yes")
	if code != 3 || !strings.Contains(out, "is being deleted: wait until it is gone") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	live := e.Read(held)
	live.SetFinalizers(nil)
	if _, err := e.Of(held).Update(t.Context(), live, updateOptions); err != nil {
		t.Fatal(err)
	}
	e.Remove(nil, held)
	out = e.restore("configmap/held", "-n", e.Namespace)
	if !strings.Contains(out, "example.com/hold") || len(e.Read(held).GetFinalizers()) != 0 {
		t.Errorf("a finalizer that is not served:\n%s", out)
	}
}

func TestRestore_DryRunsWriteNothing(t *testing.T) {
	e := newEnv(t)
	root := e.ConfigMap("root")
	dependent := e.ConfigMap("dependent", root)
	e.store(archive.Cause{}, root, dependent)
	e.Remove([]*unstructured.Unstructured{root}, dependent)
	for _, mode := range []string{"--dry-run=client", "--dry-run=server", "--dry-run"} {
		out, code := e.run("configmap/root", "-n", e.Namespace, mode)
		if code != 0 || !strings.Contains(out, "Would restore 2 objects (ConfigMap: 2).") || e.Read(root) != nil {
			t.Errorf("%s: exit code %d\n%s", mode, code, out)
		}
	}
	if out, code := e.run("configmap/root", "-n", e.Namespace); code != 1 || !strings.Contains(out, "the prompt was not answered, so nothing was done") || e.Read(root) != nil {
		t.Errorf("without an answer: exit code %d\n%s", code, out)
	}
}

func TestRestore_TheNewestOfSeveralObjectsWithAName(t *testing.T) {
	e := newEnv(t)
	var former []*unstructured.Unstructured
	for range 2 {
		o := e.ConfigMap("again")
		former = append(former, e.store(archive.Cause{}, o)...)
		e.Remove([]*unstructured.Unstructured{o})
	}
	out := e.restore("configmap/again", "-n", e.Namespace)
	if !strings.Contains(out, "2 former objects were ConfigMap "+e.Namespace+"/again. The newest is restored") {
		t.Errorf("got\n%s", out)
	}
	if from := e.Read(former[0]).GetAnnotations()["gleaner.dev/restored-from"]; !strings.Contains(from, string(former[1].GetUID())) {
		t.Errorf("restored from %s", from)
	}
	e.Remove([]*unstructured.Unstructured{e.Read(former[0])})
	e.restore("--uid", string(former[0].GetUID()))
	if from := e.Read(former[0]).GetAnnotations()["gleaner.dev/restored-from"]; !strings.Contains(from, string(former[0].GetUID())) {
		t.Errorf("with --uid: restored from %s", from)
	}
}

func TestRestore_ToAnotherNamespace(t *testing.T) {
	e := newEnv(t)
	copied := devtest.Namespace(t, e.cluster.RESTConfig())
	root := e.ConfigMap("root")
	e.store(archive.Cause{}, root, e.ConfigMap("dependent", root)) // both still exist
	e.restore("configmap/root", "-n", e.Namespace, "--to-namespace", copied)
	dependent := e.ConfigMap("below")
	dependent.SetName("dependent")
	dependent.SetNamespace(copied)
	root.SetNamespace(copied)
	refs := e.Read(dependent).GetOwnerReferences()
	if len(refs) != 1 || refs[0].UID != e.Read(root).GetUID() {
		t.Errorf("the copy's owners are %+v", refs)
	}
}

func TestUndo_RestoresWhatGleanerDeleted(t *testing.T) {
	e := newEnv(t)
	mine, theirs := e.ConfigMap("mine"), e.ConfigMap("theirs")
	archived := e.store(archive.Cause{By: archive.ByGleaner}, mine)
	e.store(archive.Cause{By: archive.ByOther}, theirs)
	e.Remove([]*unstructured.Unstructured{mine, theirs})
	e.restore("undo", "--since", "10m", "-n", e.Namespace)
	e.Compare(archived)
	if e.Read(theirs) != nil {
		t.Error("what a user deleted was restored")
	}
	e.restore("--since", "10m", "-n", e.Namespace)
	if e.Read(theirs) == nil {
		t.Error("it was not restored by gleaner restore --since")
	}
}
