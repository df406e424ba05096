package intents

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

func (w *env) get(t hostabi.Target) hostabi.Result {
	return w.execute(hostabi.Intent{Get: &hostabi.GetIntent{Target: t}})
}

func TestGet_RequiresGrantAndPermission(t *testing.T) {
	w := newEnv(t, "configmaps get")
	w.grantRead("configmaps", "secrets")
	made := w.createConfigMap("a", map[string]string{"k": "v"})
	w.createSecret("a", map[string]string{"password": "hunter2"})

	r := w.get(w.target("a"))
	var got struct{ Data map[string]string }
	if r.Object == nil {
		t.Fatal(describe(r))
	}
	if err := r.Object.Decode(&got); err != nil || got.Data["k"] != "v" || !r.Object.Is("", "ConfigMap") || r.Object.Metadata.UID != string(made.UID) {
		t.Errorf("got %s, %v", describe(r), err)
	}

	w.expectError(w.get(w.target("none")), hostabi.ErrorNotFound, `"none" not found`)
	secret := w.target("a")
	secret.Kind = "Secret"
	w.expectError(w.get(secret), hostabi.ErrorForbidden, "service account "+w.on.Account.Namespace+"/worker may not get secrets \"a\" in namespace "+secret.Namespace)
	other := w.target("a")
	other.Namespace = "kube-system"
	w.expectError(w.get(other), hostabi.ErrorNotGranted)
	unknown := w.target("a")
	unknown.Kind = "Unknown"
	w.expectError(w.get(unknown), hostabi.ErrorInvalid, "not served")
	w.expectError(w.get(w.target("a/status")), hostabi.ErrorInvalid)

	w.on.Account.Name = "nobody"
	w.expectError(w.get(w.target("a")), hostabi.ErrorForbidden, "nobody")
}

func TestGet_ClusterGrants_NameTheirNamespaces(t *testing.T) {
	w := newEnv(t, "configmaps get list")
	w.grantRead("configmaps")
	w.createConfigMap("a", nil)
	w.on.Namespace = ""
	if r := w.get(w.target("a")); r.Object == nil {
		t.Error(describe(r))
	}
	other := w.target("a")
	other.Namespace = "kube-system"
	w.expectError(w.get(other), hostabi.ErrorNotGranted)
	all := hostabi.Intent{List: &hostabi.ListIntent{APIVersion: "v1", Kind: "ConfigMap"}}
	w.expectError(w.execute(all), hostabi.ErrorNotGranted)
	w.on.Grants.Read[0].Namespaces = []string{policies.Wildcard}
	w.expectError(w.execute(all), hostabi.ErrorForbidden, "/worker may not list configmaps: ") // by RBAC: the account has rights only in its namespace
	w.expectError(w.get(other), hostabi.ErrorForbidden)
}

func TestList_ReturnsPages(t *testing.T) {
	w := newEnv(t, "configmaps list")
	w.grantRead("configmaps")
	for i := range 5 {
		w.createConfigMap(fmt.Sprint("a", i), nil)
	}
	list := &hostabi.ListIntent{APIVersion: "v1", Kind: "ConfigMap", Namespace: w.ns, Limit: 2, FieldSelector: "metadata.name!=a3"}
	var names []string
	for range 3 {
		r := w.execute(hostabi.Intent{List: list})
		if r.List == nil {
			t.Fatal(describe(r))
		}
		for _, item := range r.List.Items {
			if !item.Is("", "ConfigMap") || item.APIVersion != "v1" {
				t.Errorf("item is a %s %s", item.APIVersion, item.Kind)
			}
			names = append(names, item.Metadata.Name)
		}
		if list.Continue = r.List.Continue; list.Continue == "" {
			break
		}
	}
	if got := strings.Join(names, " "); got != "a0 a1 a2 a4" || list.Continue != "" {
		t.Errorf("got %s and continue token %q", got, list.Continue)
	}
	list.Continue = "nonsense"
	w.expectError(w.execute(hostabi.Intent{List: list}), hostabi.ErrorInvalid, "continue")
	list.Continue, list.LabelSelector = "", "a=b=c"
	w.expectError(w.execute(hostabi.Intent{List: list}), hostabi.ErrorInvalid)
}

func TestList_OfLargeObjects_HasSmallerPages(t *testing.T) {
	w := newEnv(t, "configmaps list")
	w.grantRead("configmaps")
	for i := range 6 {
		w.createConfigMap(fmt.Sprint("a", i), map[string]string{"k": strings.Repeat("x", 900_000)})
	}
	list := &hostabi.ListIntent{APIVersion: "v1", Kind: "ConfigMap", Namespace: w.ns, Limit: 6}
	pages, items := 0, 0
	for more := true; more; more = list.Continue != "" {
		r := w.execute(hostabi.Intent{List: list})
		if r.List == nil {
			t.Fatal(describe(r))
		}
		size, err := json.Marshal(r)
		if err != nil || len(size) > hostabi.MaxRequestBytes/4+1000 {
			t.Errorf("a page has %d bytes, %v", len(size), err)
		}
		pages, items, list.Continue = pages+1, items+len(r.List.Items), r.List.Continue
	}
	if items != 6 || pages < 3 {
		t.Errorf("%d items on %d pages", items, pages)
	}
}

func (w *env) create(object string) hostabi.Result {
	return w.execute(hostabi.Intent{Create: &hostabi.CreateIntent{Object: []byte(strings.ReplaceAll(object, "NS", w.ns))}})
}

func TestCreate_ReturnsAlreadyExists(t *testing.T) {
	w := newEnv(t, "configmaps create")
	w.grantWrite("configmaps", policies.VerbCreate)
	const object = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "NS"}, "data": {"k": "v"}}`
	r := w.create(object)
	if r.Object == nil || r.Object.Metadata.UID == "" || r.Object.Metadata.Name != "a" {
		t.Fatal(describe(r))
	}
	made, err := w.client.CoreV1().ConfigMaps(w.ns).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || len(made.ManagedFields) != 1 || made.ManagedFields[0].Manager != "gleaner/"+w.on.Name {
		t.Errorf("created with managed fields %+v: %v", made.ManagedFields, err)
	}
	w.expectError(w.create(object), hostabi.ErrorAlreadyExists)
	w.expectError(w.create(strings.ReplaceAll(object, `"data"`, `"dtaa"`)), hostabi.ErrorInvalid, "dtaa")
	w.expectError(w.create(strings.ReplaceAll(object, `"name": "a"`, `"name": "A_"`)), hostabi.ErrorInvalid)
	w.expectError(w.create(strings.ReplaceAll(object, `"NS"`, `"kube-system"`)), hostabi.ErrorNotGranted)
	w.expectError(w.create(strings.ReplaceAll(object, `"namespace": "NS"`, `"labels": {}`)), hostabi.ErrorNotGranted)
	w.expectError(w.create(strings.ReplaceAll(object, "ConfigMap", "Secret")), hostabi.ErrorNotGranted, "grants.write")
	w.grantWrite("secrets", policies.VerbCreate)
	w.expectError(w.create(strings.ReplaceAll(object, `"ConfigMap"`, `"Secret"`)), hostabi.ErrorForbidden)
	w.on.ReadOnly = true
	w.expectError(w.create(strings.ReplaceAll(object, `"a"`, `"b"`)), hostabi.ErrorNotGranted, "Monitor")
	if _, err := w.client.CoreV1().ConfigMaps(w.ns).Get(t.Context(), "b", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("created in Monitor mode: %v", err)
	}
}

func TestDelete_HasPreconditions(t *testing.T) {
	w := newEnv(t, "configmaps delete")
	w.grantWrite("configmaps", policies.VerbDelete)
	made := w.createConfigMap("a", nil)
	deleting := func(uid, version string) hostabi.Result {
		return w.execute(hostabi.Intent{Delete: &hostabi.DeleteIntent{Target: w.target("a"), UID: uid, ResourceVersion: version}})
	}
	w.expectError(deleting("", ""), hostabi.ErrorInvalid, "uid")
	w.expectError(deleting("another", ""), hostabi.ErrorConflict)
	w.expectError(deleting(string(made.UID), "1"), hostabi.ErrorConflict)
	if r := deleting(string(made.UID), made.ResourceVersion); r.Error != nil {
		t.Error(describe(r))
	}
	w.expectError(deleting(string(made.UID), ""), hostabi.ErrorNotFound)
	w.on.Grants.Write[0].Verbs = []policies.Verb{policies.VerbPatch}
	w.expectError(deleting(string(made.UID), ""), hostabi.ErrorNotGranted)
}

func TestDelete_HasItsPropagationPolicy(t *testing.T) {
	w := newEnv(t, "configmaps delete patch")
	w.grantWrite("configmaps", policies.VerbDelete, policies.VerbPatch)
	for propagation, finalizer := range map[hostabi.Propagation]string{
		hostabi.PropagationForeground: "foregroundDeletion", hostabi.PropagationOrphan: "orphan",
	} {
		name := strings.ToLower(string(propagation))
		made := w.createConfigMap(name, nil)
		r := w.execute(hostabi.Intent{Delete: &hostabi.DeleteIntent{Target: w.target(name), UID: string(made.UID), Propagation: propagation}})
		if r.Error != nil {
			t.Error(describe(r))
		}
		left, err := w.client.CoreV1().ConfigMaps(w.ns).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || !slices.Contains(left.Finalizers, finalizer) {
			t.Errorf("%s: left with finalizers %v, %v", propagation, left.Finalizers, err)
		}
		// No collector runs in this test.
		if r := w.patch(name, hostabi.PatchMerge, `{"metadata": {"finalizers": null}}`); r.Error != nil {
			t.Error(describe(r))
		}
	}
}

func (w *env) patch(name string, as hostabi.PatchType, patch string) hostabi.Result {
	return w.execute(hostabi.Intent{Patch: &hostabi.PatchIntent{Target: w.target(name), Type: as, Patch: []byte(patch)}})
}

// resultData returns the data field of a result's object.
func resultData(r hostabi.Result) string {
	var o struct{ Data map[string]string }
	if r.Object == nil || r.Object.Decode(&o) != nil {
		return describe(r)
	}
	return fmt.Sprint(o.Data)
}

func TestPatch_OfEachType(t *testing.T) {
	w := newEnv(t, "configmaps patch")
	w.grantWrite("configmaps", policies.VerbPatch)
	made := w.createConfigMap("a", map[string]string{"k": "v"})
	for _, c := range []struct {
		as          hostabi.PatchType
		patch, want string
	}{
		{hostabi.PatchMerge, `{"data": {"merged": "1"}}`, "map[k:v merged:1]"},
		{hostabi.PatchMerge, `{"metadata": {"uid": "` + string(made.UID) + `"}, "data": {"merged": null}}`, "map[k:v]"},
		{hostabi.PatchJSON, `[{"op": "test", "path": "/data/k", "value": "v"}, {"op": "add", "path": "/data/json", "value": "1"}]`, "map[json:1 k:v]"},
		{hostabi.PatchApply, `{"metadata": {"uid": "` + string(made.UID) + `"}, "data": {"applied": "1"}}`, "map[applied:1 json:1 k:v]"},
		{hostabi.PatchApply, `{"metadata": {"uid": "` + string(made.UID) + `"}}`, "map[json:1 k:v]"},
	} {
		if got := resultData(w.patch("a", c.as, c.patch)); got != c.want {
			t.Errorf("%s %s: got %s, want %s", c.as, c.patch, got, c.want)
		}
	}
	w.expectError(w.patch("a", hostabi.PatchMerge, `{"metadata": {"uid": "another"}}`), hostabi.ErrorConflict)
	w.expectError(w.patch("a", hostabi.PatchMerge, `{"metadata": {"resourceVersion": "1"}, "data": {"x": "y"}}`), hostabi.ErrorConflict)
	w.expectError(w.patch("a", hostabi.PatchMerge, `{"dtaa": {}}`), hostabi.ErrorInvalid, "dtaa")
	w.expectError(w.patch("a", hostabi.PatchJSON, `[{"op": "test", "path": "/data/k", "value": "other"}]`), hostabi.ErrorInvalid)
	w.expectError(w.patch("a", "strategic", `{}`), hostabi.ErrorInvalid, "merge, json or apply")
	w.expectError(w.patch("none", hostabi.PatchMerge, `{}`), hostabi.ErrorNotFound)
	w.expectError(w.patch("a", hostabi.PatchApply, `{"metadata": {"uid": "`+string(made.UID)+`"}, "data": {"k": "mine"}}`),
		hostabi.ErrorConflict, "somebody", "merge")
}

func TestPatch_Apply_CreatesOnlyIfGranted(t *testing.T) {
	w := newEnv(t, "configmaps patch create")
	w.grantWrite("configmaps", policies.VerbPatch)
	w.expectError(w.patch("a", hostabi.PatchApply, `{"data": {"k": "v"}}`), hostabi.ErrorNotGranted, "grant create")
	w.expectError(w.patch("a", hostabi.PatchApply, `{"metadata": {"uid": "1"}, "data": {"k": "v"}}`), hostabi.ErrorConflict)
	if _, err := w.client.CoreV1().ConfigMaps(w.ns).Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("object was created: %v", err)
	}
	w.grantWrite("configmaps", policies.VerbCreate)
	if got := resultData(w.patch("a", hostabi.PatchApply, `{"data": {"k": "v"}}`)); got != "map[k:v]" {
		t.Error(got)
	}
}
