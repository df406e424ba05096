package restore

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/test/objects"
)

func TestArchive_DiffComparesWithTheLiveObject(t *testing.T) {
	e := newEnv(t)
	root := e.ConfigMap("root")
	dependent := e.ConfigMap("dependent", root)
	e.store(archive.Cause{}, root, dependent)
	diff := func(name string) (string, int) { return e.run("archive", "diff", "configmap/"+name, "-n", e.Namespace) }
	if out, code := diff("dependent"); code != 0 || out != "" {
		t.Errorf("an object that was not changed: exit code %d\n%s", code, out)
	}
	e.Remove([]*unstructured.Unstructured{root}, dependent)
	if out, code := diff("dependent"); code != 1 || !strings.Contains(out, "-kind: ConfigMap") {
		t.Errorf("an object that was deleted: exit code %d\n%s", code, out)
	}
	e.restore("configmap/root", "-n", e.Namespace)
	if out, code := diff("dependent"); code != 0 {
		t.Errorf("an object that was restored: exit code %d\n%s", code, out)
	}
	live := e.Read(dependent)
	live.Object["data"] = map[string]any{"k": "changed"}
	if _, err := e.Of(live).Update(t.Context(), live, updateOptions); err != nil {
		t.Fatal(err)
	}
	if out, code := diff("dependent"); code != 1 || !strings.Contains(out, "-  k: v\n+  k: changed\n") {
		t.Errorf("an object that was changed: exit code %d\n%s", code, out)
	}
	if out, code := diff("never"); code != 3 {
		t.Errorf("an object that was never archived: exit code %d\n%s", code, out)
	}
}

func TestArchive_IsListedAndVerifiedThroughTheOperator(t *testing.T) {
	e := newEnv(t)
	e.store(archive.Cause{By: archive.ByGleaner}, e.ConfigMap("a"), e.Create(objects.Deployment))
	out, code := e.run("archive", "list", "deployments.apps", "-n", e.Namespace, "-o", "name")
	if code != 0 || out != "deployment.apps/web\n" {
		t.Errorf("list: exit code %d\n%s", code, out)
	}
	out, code = e.run("archive", "verify")
	if code != 0 || !strings.Contains(out, "Verified 2 entries") {
		t.Errorf("verify: exit code %d\n%s", code, out)
	}
}
