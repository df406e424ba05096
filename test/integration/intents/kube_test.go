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

func (w *world) get(t hostabi.Target) hostabi.Result {
	return w.asks(hostabi.Intent{Get: &hostabi.GetIntent{Target: t}})
}

func TestGet_ReadsWhatIsGrantedAndAllowed(t *testing.T) {
	w := newWorld(t, "configmaps get")
	w.reads("configmaps", "secrets")
	made := w.configMap("a", map[string]string{"k": "v"})
	w.secret("a", map[string]string{"password": "hunter2"})

	r := w.get(w.target("a"))
	var got struct{ Data map[string]string }
	if r.Object == nil {
		t.Fatal(show(r))
	}
	if err := r.Object.Decode(&got); err != nil || got.Data["k"] != "v" || !r.Object.Is("", "ConfigMap") || r.Object.Metadata.UID != string(made.UID) {
		t.Errorf("got %s, %v", show(r), err)
	}

	w.fails(w.get(w.target("none")), hostabi.ErrorNotFound, `"none" not found`)
	secret := w.target("a")
	secret.Kind = "Secret"
	w.fails(w.get(secret), hostabi.ErrorForbidden, "service account "+w.on.Account.Namespace+"/worker may not get secrets \"a\" in namespace "+secret.Namespace)
	other := w.target("a")
	other.Namespace = "kube-system"
	w.fails(w.get(other), hostabi.ErrorNotGranted)
	unknown := w.target("a")
	unknown.Kind = "Unknown"
	w.fails(w.get(unknown), hostabi.ErrorInvalid, "not served")
	w.fails(w.get(w.target("a/status")), hostabi.ErrorInvalid)

	w.on.Account.Name = "nobody"
	w.fails(w.get(w.target("a")), hostabi.ErrorForbidden, "nobody")
}

func TestGet_GrantsOfTheClusterNameTheirNamespaces(t *testing.T) {
	w := newWorld(t, "configmaps get list")
	w.reads("configmaps")
	w.configMap("a", nil)
	w.on.Namespace = ""
	if r := w.get(w.target("a")); r.Object == nil {
		t.Error(show(r))
	}
	other := w.target("a")
	other.Namespace = "kube-system"
	w.fails(w.get(other), hostabi.ErrorNotGranted)
	all := hostabi.Intent{List: &hostabi.ListIntent{APIVersion: "v1", Kind: "ConfigMap"}}
	w.fails(w.asks(all), hostabi.ErrorNotGranted)
	w.on.Grants.Read[0].Namespaces = []string{policies.All}
	w.fails(w.asks(all), hostabi.ErrorForbidden, "/worker may not list configmaps: ") // by RBAC, which the account has in its namespace alone
	w.fails(w.get(other), hostabi.ErrorForbidden)
}

func TestList_GivesPages(t *testing.T) {
	w := newWorld(t, "configmaps list")
	w.reads("configmaps")
	for i := range 5 {
		w.configMap(fmt.Sprint("a", i), nil)
	}
	list := &hostabi.ListIntent{APIVersion: "v1", Kind: "ConfigMap", Namespace: w.ns, Limit: 2, FieldSelector: "metadata.name!=a3"}
	var names []string
	for range 3 {
		r := w.asks(hostabi.Intent{List: list})
		if r.List == nil {
			t.Fatal(show(r))
		}
		for _, item := range r.List.Items {
			if !item.Is("", "ConfigMap") || item.APIVersion != "v1" {
				t.Errorf("an item is a %s %s", item.APIVersion, item.Kind)
			}
			names = append(names, item.Metadata.Name)
		}
		if list.Continue = r.List.Continue; list.Continue == "" {
			break
		}
	}
	if got := strings.Join(names, " "); got != "a0 a1 a2 a4" || list.Continue != "" {
		t.Errorf("got %s, and continue %q", got, list.Continue)
	}
	list.Continue = "nonsense"
	w.fails(w.asks(hostabi.Intent{List: list}), hostabi.ErrorInvalid, "continue")
	list.Continue, list.LabelSelector = "", "a=b=c"
	w.fails(w.asks(hostabi.Intent{List: list}), hostabi.ErrorInvalid)
}

func TestList_OfLargeObjectsHasSmallerPages(t *testing.T) {
	w := newWorld(t, "configmaps list")
	w.reads("configmaps")
	for i := range 6 {
		w.configMap(fmt.Sprint("a", i), map[string]string{"k": strings.Repeat("x", 900_000)})
	}
	list := &hostabi.ListIntent{APIVersion: "v1", Kind: "ConfigMap", Namespace: w.ns, Limit: 6}
	pages, items := 0, 0
	for more := true; more; more = list.Continue != "" {
		r := w.asks(hostabi.Intent{List: list})
		if r.List == nil {
			t.Fatal(show(r))
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

func (w *world) create(object string) hostabi.Result {
	return w.asks(hostabi.Intent{Create: &hostabi.CreateIntent{Object: []byte(strings.ReplaceAll(object, "NS", w.ns))}})
}

func TestCreate_IsToldThatItIsThereAlready(t *testing.T) {
	w := newWorld(t, "configmaps create")
	w.writes("configmaps", policies.VerbCreate)
	const object = `{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "NS"}, "data": {"k": "v"}}`
	r := w.create(object)
	if r.Object == nil || r.Object.Metadata.UID == "" || r.Object.Metadata.Name != "a" {
		t.Fatal(show(r))
	}
	made, err := w.client.CoreV1().ConfigMaps(w.ns).Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil || len(made.ManagedFields) != 1 || made.ManagedFields[0].Manager != "gleaner/"+w.on.Name {
		t.Errorf("made by %+v, %v", made.ManagedFields, err)
	}
	w.fails(w.create(object), hostabi.ErrorAlreadyExists)
	w.fails(w.create(strings.ReplaceAll(object, `"data"`, `"dtaa"`)), hostabi.ErrorInvalid, "dtaa")
	w.fails(w.create(strings.ReplaceAll(object, `"name": "a"`, `"name": "A_"`)), hostabi.ErrorInvalid)
	w.fails(w.create(strings.ReplaceAll(object, `"NS"`, `"kube-system"`)), hostabi.ErrorNotGranted)
	w.fails(w.create(strings.ReplaceAll(object, `"namespace": "NS"`, `"labels": {}`)), hostabi.ErrorNotGranted)
	w.fails(w.create(strings.ReplaceAll(object, "ConfigMap", "Secret")), hostabi.ErrorNotGranted, "grants.write")
	w.writes("secrets", policies.VerbCreate)
	w.fails(w.create(strings.ReplaceAll(object, `"ConfigMap"`, `"Secret"`)), hostabi.ErrorForbidden)
	w.on.ReadOnly = true
	w.fails(w.create(strings.ReplaceAll(object, `"a"`, `"b"`)), hostabi.ErrorNotGranted, "Monitor")
	if _, err := w.client.CoreV1().ConfigMaps(w.ns).Get(t.Context(), "b", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("in Monitor it was made: %v", err)
	}
}

func TestDelete_InsistsOnTheObjectThatIsMeant(t *testing.T) {
	w := newWorld(t, "configmaps delete")
	w.writes("configmaps", policies.VerbDelete)
	made := w.configMap("a", nil)
	deleting := func(uid, version string) hostabi.Result {
		return w.asks(hostabi.Intent{Delete: &hostabi.DeleteIntent{Target: w.target("a"), UID: uid, ResourceVersion: version}})
	}
	w.fails(deleting("", ""), hostabi.ErrorInvalid, "uid")
	w.fails(deleting("another", ""), hostabi.ErrorConflict)
	w.fails(deleting(string(made.UID), "1"), hostabi.ErrorConflict)
	if r := deleting(string(made.UID), made.ResourceVersion); r.Error != nil {
		t.Error(show(r))
	}
	w.fails(deleting(string(made.UID), ""), hostabi.ErrorNotFound)
	w.on.Grants.Write[0].Verbs = []policies.Verb{policies.VerbPatch}
	w.fails(deleting(string(made.UID), ""), hostabi.ErrorNotGranted)
}

func TestDelete_HasItsPropagation(t *testing.T) {
	w := newWorld(t, "configmaps delete patch")
	w.writes("configmaps", policies.VerbDelete, policies.VerbPatch)
	for propagation, finalizer := range map[hostabi.Propagation]string{
		hostabi.PropagationForeground: "foregroundDeletion", hostabi.PropagationOrphan: "orphan",
	} {
		name := strings.ToLower(string(propagation))
		made := w.configMap(name, nil)
		r := w.asks(hostabi.Intent{Delete: &hostabi.DeleteIntent{Target: w.target(name), UID: string(made.UID), Propagation: propagation}})
		if r.Error != nil {
			t.Error(show(r))
		}
		left, err := w.client.CoreV1().ConfigMaps(w.ns).Get(t.Context(), name, metav1.GetOptions{})
		if err != nil || !slices.Contains(left.Finalizers, finalizer) {
			t.Errorf("%s: left with finalizers %v, %v", propagation, left.Finalizers, err)
		}
		// No collector runs here.
		if r := w.patch(name, hostabi.PatchMerge, `{"metadata": {"finalizers": null}}`); r.Error != nil {
			t.Error(show(r))
		}
	}
}

func (w *world) patch(name string, as hostabi.PatchType, patch string) hostabi.Result {
	return w.asks(hostabi.Intent{Patch: &hostabi.PatchIntent{Target: w.target(name), Type: as, Patch: []byte(patch)}})
}

// data is the object of a result, as its data.
func data(r hostabi.Result) string {
	var o struct{ Data map[string]string }
	if r.Object == nil || r.Object.Decode(&o) != nil {
		return show(r)
	}
	return fmt.Sprint(o.Data)
}

func TestPatch_OfEachType(t *testing.T) {
	w := newWorld(t, "configmaps patch")
	w.writes("configmaps", policies.VerbPatch)
	made := w.configMap("a", map[string]string{"k": "v"})
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
		if got := data(w.patch("a", c.as, c.patch)); got != c.want {
			t.Errorf("%s %s: got %s, want %s", c.as, c.patch, got, c.want)
		}
	}
	w.fails(w.patch("a", hostabi.PatchMerge, `{"metadata": {"uid": "another"}}`), hostabi.ErrorConflict)
	w.fails(w.patch("a", hostabi.PatchMerge, `{"metadata": {"resourceVersion": "1"}, "data": {"x": "y"}}`), hostabi.ErrorConflict)
	w.fails(w.patch("a", hostabi.PatchMerge, `{"dtaa": {}}`), hostabi.ErrorInvalid, "dtaa")
	w.fails(w.patch("a", hostabi.PatchJSON, `[{"op": "test", "path": "/data/k", "value": "other"}]`), hostabi.ErrorInvalid)
	w.fails(w.patch("a", "strategic", `{}`), hostabi.ErrorInvalid, "merge, json or apply")
	w.fails(w.patch("none", hostabi.PatchMerge, `{}`), hostabi.ErrorNotFound)
	w.fails(w.patch("a", hostabi.PatchApply, `{"metadata": {"uid": "`+string(made.UID)+`"}, "data": {"k": "mine"}}`),
		hostabi.ErrorConflict, "somebody", "merge")
}

func TestPatch_AnApplyPatchCreatesOnlyWhereThatIsGranted(t *testing.T) {
	w := newWorld(t, "configmaps patch create")
	w.writes("configmaps", policies.VerbPatch)
	w.fails(w.patch("a", hostabi.PatchApply, `{"data": {"k": "v"}}`), hostabi.ErrorNotGranted, "grant create")
	w.fails(w.patch("a", hostabi.PatchApply, `{"metadata": {"uid": "1"}, "data": {"k": "v"}}`), hostabi.ErrorConflict)
	if _, err := w.client.CoreV1().ConfigMaps(w.ns).Get(t.Context(), "a", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("it was created: %v", err)
	}
	w.writes("configmaps", policies.VerbCreate)
	if got := data(w.patch("a", hostabi.PatchApply, `{"data": {"k": "v"}}`)); got != "map[k:v]" {
		t.Error(got)
	}
}
