package restore_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/restore"
)

// object returns an archived object, whose UID is its name, with its owners.
func object(apiVersion, kind, name string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{}}
	o.SetAPIVersion(apiVersion)
	o.SetKind(kind)
	o.SetNamespace("shop")
	o.SetName(name)
	o.SetUID(types.UID("old-" + name))
	o.SetResourceVersion("7")
	var refs []metav1.OwnerReference
	for i, owner := range owners {
		ref := metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID()}
		if i == 0 {
			ref.Controller = ptr.To(true)
		}
		refs = append(refs, ref)
	}
	o.SetOwnerReferences(refs)
	return o
}

func configMap(name string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	return object("v1", "ConfigMap", name, owners...)
}

// input returns an input in which nothing exists that is archived or an owner of it.
func input(archived ...*unstructured.Unstructured) restore.Input {
	in := restore.Input{Archived: archived, Live: map[restore.Key]restore.Live{}}
	for _, o := range archived {
		in.Live[restore.KeyOf(o)] = restore.Live{Presence: restore.Absent}
		for _, ref := range o.GetOwnerReferences() {
			owner := object(ref.APIVersion, ref.Kind, ref.Name)
			in.Live[restore.KeyOf(owner)] = restore.Live{Presence: restore.Absent}
		}
	}
	return in
}

// carryOut creates the objects of a plan, at most limit of them, in a cluster, with new UIDs.
func carryOut(t *testing.T, in restore.Input, plan restore.Plan, limit int) (created []*unstructured.Unstructured) {
	t.Helper()
	if len(plan.Conflicts) != 0 {
		t.Fatalf("conflicts: %+v", plan.Conflicts)
	}
	current := map[types.UID]types.UID{}
	for _, e := range plan.Existing {
		current[e.FormerUID] = e.CurrentUID
	}
	for _, step := range plan.Steps[:min(limit, len(plan.Steps))] {
		o, err := step.Object(current)
		if err != nil {
			t.Fatal(err)
		}
		if o.GetUID() != "" || o.GetResourceVersion() != "" {
			t.Errorf("%s has the UID %q and the resourceVersion %q", step.Key, o.GetUID(), o.GetResourceVersion())
		}
		o.SetUID("new-" + types.UID(o.GetName()))
		current[step.FormerUID] = o.GetUID()
		in.Live[step.Key] = restore.Live{Presence: restore.Present, Object: o}
		created = append(created, o)
	}
	return created
}

func namesOf(objects []*unstructured.Unstructured) (names []string) {
	for _, o := range objects {
		names = append(names, o.GetName())
	}
	return names
}

func TestBuild_OwnersComeFirstAndHaveTheirNewUIDs(t *testing.T) {
	root, second := configMap("root"), configMap("second")
	middle := configMap("middle", root)
	leaf := configMap("leaf", middle, second)
	in := input(leaf, second, middle, root)
	created := carryOut(t, in, restore.Build(in), 10)
	if diff := cmp.Diff([]string{"root", "middle", "second", "leaf"}, namesOf(created)); diff != "" {
		t.Error(diff)
	}
	got := created[3].GetOwnerReferences()
	if len(got) != 2 || got[0].UID != "new-middle" || got[1].UID != "new-second" || !*got[0].Controller {
		t.Errorf("its owners are %+v", got)
	}
}

func TestBuild_ThatIsInterruptedEndsInTheSameState(t *testing.T) {
	root := configMap("root")
	middle, other := configMap("middle", root), configMap("other", root)
	archived := []*unstructured.Unstructured{configMap("leaf", middle, other), middle, other, root}
	whole := input(archived...)
	carryOut(t, whole, restore.Build(whole), 10)
	for limit := range 5 {
		in := input(archived...)
		carryOut(t, in, restore.Build(in), limit)
		again := restore.Build(in)
		if len(again.Existing) != limit || len(again.Steps) != 4-limit {
			t.Errorf("after %d steps: %d restored before, %d steps", limit, len(again.Existing), len(again.Steps))
		}
		carryOut(t, in, again, 10)
		if diff := cmp.Diff(whole.Live, in.Live); diff != "" {
			t.Errorf("interrupted after %d steps: %s", limit, diff)
		}
	}
}

func TestBuild_ListsConflictsInsteadOfSteps(t *testing.T) {
	owner := configMap("owner")
	dependent := configMap("dependent", owner)
	key, ownerKey := restore.KeyOf(dependent), restore.KeyOf(owner)
	copied := configMap("dependent")
	copied.SetAnnotations(map[string]string{restore.FromAnnotation: `{"kind":"ConfigMap","namespace":"shop","name":"elsewhere","uid":"old-dependent"}`})
	shop := restore.KeyOf(namespaceObject())
	for claim, c := range map[string]struct {
		change func(*restore.Input)
		words  string // empty: no conflict
	}{
		"an owner that neither exists nor is restored":  {func(*restore.Input) {}, "it would be collected again"},
		"the same, with --drop-owners":                  {func(in *restore.Input) { in.DropOwners = true }, ""},
		"an owner that exists":                          {func(in *restore.Input) { in.Live[ownerKey] = present(owner) }, ""},
		"an owner that was replaced":                    {func(in *restore.Input) { in.Live[ownerKey] = present(configMap("owner2")) }, "it would be collected again"},
		"an owner that could not be read":               {func(in *restore.Input) { in.Live[ownerKey] = restore.Live{} }, "its owner ConfigMap owner exists is not known"},
		"an owner that was not looked for":              {func(in *restore.Input) { delete(in.Live, ownerKey) }, "its owner ConfigMap owner exists is not known"},
		"an object of that name":                        {func(in *restore.Input) { in.Live[key] = present(configMap("dependent")) }, "exists already, with UID"},
		"a restored object's annotation on another one": {func(in *restore.Input) { in.Live[key] = present(copied) }, "exists already, with UID"},
		"a name that could not be read":                 {func(in *restore.Input) { in.Live[key] = restore.Live{} }, "could not be read"},
		"a name that was not looked for":                {func(in *restore.Input) { delete(in.Live, key) }, "could not be read"},
		"an object that is being deleted":               {func(in *restore.Input) { in.Live[key] = present(terminating(dependent)) }, "wait until it is gone"},
		"an owner that is being deleted":                {func(in *restore.Input) { in.Live[ownerKey] = present(terminating(owner)) }, "is being deleted, so it would be collected again"},
		"a type that is not served":                     {func(in *restore.Input) { in.Live[key] = restore.Live{Presence: restore.Unserved} }, "does not serve"},
		"an owner whose type is not served":             {func(in *restore.Input) { in.Live[ownerKey] = restore.Live{Presence: restore.Unserved} }, "it would be collected again"},
		"a namespace that does not exist":               {func(in *restore.Input) { in.Live[shop] = restore.Live{Presence: restore.Absent} }, "create it first"},
		"a namespace that is being deleted":             {func(in *restore.Input) { in.Live[shop] = present(terminating(namespaceObject())) }, "wait until it is gone"},
	} {
		t.Run(claim, func(t *testing.T) {
			in := input(dependent)
			c.change(&in)
			plan := restore.Build(in)
			switch {
			case c.words == "" && (len(plan.Conflicts) != 0 || len(plan.Steps) != 1):
				t.Errorf("got %+v", plan)
			case c.words != "" && (len(plan.Conflicts) != 1 || !strings.Contains(plan.Conflicts[0].Message, c.words) || len(plan.Steps) != 0):
				t.Errorf("got %+v, want a conflict with %q", plan, c.words)
			}
		})
	}
}

func present(o *unstructured.Unstructured) restore.Live {
	return restore.Live{Presence: restore.Present, Object: o}
}

func TestBuild_LeavesToControllersWhatTheyCreate(t *testing.T) {
	deployment := object("apps/v1", "Deployment", "web")
	set := object("apps/v1", "ReplicaSet", "web-1", deployment)
	pod := object("v1", "Pod", "web-1-a", set)
	own := configMap("own", deployment)
	in := input(pod, set, deployment, own)
	plan := restore.Build(in)
	if len(plan.Left) != 2 || len(plan.Steps) != 2 || len(plan.Conflicts) != 0 {
		t.Errorf("got %+v", plan)
	}
	if in.All = true; len(restore.Build(in).Steps) != 4 {
		t.Errorf("with --all, got %+v", restore.Build(in))
	}
	alone := input(pod)
	alone.DropOwners = true
	if plan := restore.Build(alone); len(plan.Steps) != 1 {
		t.Errorf("a Pod whose ReplicaSet is not restored is left to it: %+v", plan)
	}
}

func TestBuild_ReferencesInACycleAreReported(t *testing.T) {
	b := configMap("b", configMap("a"))
	a := configMap("a", b)
	in := input(a, b)
	plan := restore.Build(in)
	if len(plan.Warnings) != 1 || !strings.Contains(plan.Warnings[0].Message, "is one of its own dependents") {
		t.Errorf("got %+v", plan)
	}
	if created := carryOut(t, in, plan, 10); len(created) != 2 {
		t.Errorf("created %v", namesOf(created))
	}
}

func TestBuild_RestoresToAnotherNamespace(t *testing.T) {
	owner := configMap("owner")
	in := input(configMap("dependent", owner), owner)
	in.Namespace = "copy"
	for key := range in.Live {
		key.Namespace = "copy"
		in.Live[key] = restore.Live{Presence: restore.Absent}
	}
	for _, o := range carryOut(t, in, restore.Build(in), 10) {
		if o.GetNamespace() != "copy" {
			t.Errorf("%s is in %s", o.GetName(), o.GetNamespace())
		}
	}
	in = input(configMap("dependent", owner))
	in.Namespace = "copy"
	in.Live[restore.KeyOf(owner)] = present(owner)
	for _, name := range []string{"dependent", "owner"} {
		key := restore.KeyOf(configMap(name))
		key.Namespace = "copy"
		in.Live[key] = restore.Live{Presence: restore.Absent}
	}
	if plan := restore.Build(in); len(plan.Conflicts) != 1 {
		t.Errorf("an owner in another namespace counts: %+v", plan)
	}
}

func TestBuild_RemovesWhatOnlyTheOldObjectHad(t *testing.T) {
	for kind, c := range map[string]struct{ archived, want string }{
		"any": {
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"o","namespace":"shop","uid":"u","resourceVersion":"1","generation":2,"creationTimestamp":"2026-01-01T00:00:00Z",
			"deletionTimestamp":"2026-01-02T00:00:00Z","deletionGracePeriodSeconds":0,"generateName":"o-","managedFields":[],"labels":{"a":"b"},
			"annotations":{"gleaner.dev/memo":"x","kept":"y"},"finalizers":["foregroundDeletion","gleaner.dev/hold","archive.cluster.gleaner.dev/undelete","example.com/served","example.com/gone"]},"data":{"k":"v"},"status":{"x":1}}`,
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"o","namespace":"shop","labels":{"a":"b"},"annotations":{"kept":"y"},"finalizers":["example.com/served"]},"data":{"k":"v"}}`,
		},
		"Pod": {
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"o","namespace":"shop","uid":"u"},"spec":{"nodeName":"n","volumes":[{"name":"kube-api-access-x"},{"name":"data"}],
			"containers":[{"name":"c","volumeMounts":[{"name":"kube-api-access-x"},{"name":"data"}]}]}}`,
			`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"o","namespace":"shop"},"spec":{"volumes":[{"name":"data"}],"containers":[{"name":"c","volumeMounts":[{"name":"data"}]}]}}`,
		},
		"PersistentVolumeClaim": {
			`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"o","namespace":"shop","uid":"u","annotations":{"pv.kubernetes.io/bind-completed":"yes"}},"spec":{"volumeName":"v"}}`,
			`{"apiVersion":"v1","kind":"PersistentVolumeClaim","metadata":{"name":"o","namespace":"shop"},"spec":{"volumeName":"v"}}`,
		},
		"Secret with a token": {
			`{"apiVersion":"v1","kind":"Secret","type":"kubernetes.io/service-account-token","metadata":{"name":"o","namespace":"shop","uid":"u","annotations":
			{"kubernetes.io/service-account.name":"a","kubernetes.io/service-account.uid":"b"}},"data":{"token":"dA==","ca.crt":"","namespace":"","other":"eA=="}}`,
			`{"apiVersion":"v1","kind":"Secret","type":"kubernetes.io/service-account-token","metadata":{"name":"o","namespace":"shop","annotations":
			{"kubernetes.io/service-account.name":"a"}},"data":{"other":"eA=="}}`,
		},
		"Service": {
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"o","namespace":"shop","uid":"u"},"spec":{"clusterIP":"10.0.0.1","clusterIPs":["10.0.0.1"],
			"healthCheckNodePort":31000,"ports":[{"port":80,"nodePort":30080}]}}`,
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"o","namespace":"shop"},"spec":{"ports":[{"port":80}]}}`,
		},
		"Service without an address": {
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"o","namespace":"shop","uid":"u"},"spec":{"clusterIP":"None","clusterIPs":["None"],"ports":[{"port":80}]}}`,
			`{"apiVersion":"v1","kind":"Service","metadata":{"name":"o","namespace":"shop"},"spec":{"clusterIP":"None","clusterIPs":["None"],"ports":[{"port":80}]}}`,
		},
		"Job that had finished": {
			`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"o","namespace":"shop","uid":"u"},"spec":{"manualSelector":true},
			"status":{"conditions":[{"type":"SuccessCriteriaMet","status":"True"},{"type":"Complete","status":"True"}]}}`,
			`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"o","namespace":"shop"},"spec":{"manualSelector":true,"suspend":true}}`,
		},
		"Job": {
			`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"o","namespace":"shop","uid":"u","labels":{"controller-uid":"u","a":"b"}},"spec":{"selector":{"matchLabels":{"batch.kubernetes.io/controller-uid":"u"}},
			"template":{"metadata":{"labels":{"batch.kubernetes.io/controller-uid":"u"}}}}}`,
			`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"o","namespace":"shop","labels":{"a":"b"}},"spec":{"template":{"metadata":{"labels":{}}}}}`,
		},
		"Job with its own selector": {
			`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"o","namespace":"shop","uid":"u"},"spec":{"manualSelector":true,"selector":{"matchLabels":{"a":"b"}}}}`,
			`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"o","namespace":"shop"},"spec":{"manualSelector":true,"selector":{"matchLabels":{"a":"b"}}}}`,
		},
	} {
		t.Run(kind, func(t *testing.T) {
			archived, want := decode(t, c.archived), decode(t, c.want)
			in := input(archived)
			in.ServedFinalizers = map[string]struct{}{"example.com/served": {}}
			before := archived.DeepCopy()
			plan := restore.Build(in)
			got, err := plan.Steps[0].Object(nil)
			if err != nil {
				t.Fatal(err)
			}
			annotations := got.GetAnnotations()
			if !strings.Contains(annotations[restore.FromAnnotation], `"uid":"u"`) {
				t.Errorf("it is marked by %q", annotations[restore.FromAnnotation])
			}
			delete(annotations, restore.FromAnnotation)
			if got.SetAnnotations(annotations); len(annotations) == 0 {
				got.SetAnnotations(nil)
			}
			if diff := cmp.Diff(want.Object, got.Object); diff != "" {
				t.Error(diff)
			}
			if diff := cmp.Diff(before, archived); diff != "" {
				t.Errorf("the archived object was changed: %s", diff)
			}
			if status, ok := plan.Steps[0].After.Status(got); ok != (archived.Object["status"] != nil) || ok && !cmp.Equal(archived.Object["status"], status.Object["status"]) {
				t.Errorf("its status is %v", status)
			}
			if lost := kind == "any"; lost != (len(plan.Warnings) == 1 && strings.HasSuffix(plan.Warnings[0].Message, "serve: example.com/gone")) {
				t.Errorf("warnings: %+v", plan.Warnings)
			}
		})
	}
}

func decode(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal([]byte(text), o); err != nil {
		t.Fatal(err)
	}
	return o
}

func TestStep_NeedsItsRestoredOwners(t *testing.T) {
	owner := configMap("owner")
	plan := restore.Build(input(configMap("dependent", owner), owner))
	if _, err := plan.Steps[1].Object(nil); err == nil || !strings.Contains(err.Error(), "its owner ConfigMap owner has to be restored first") {
		t.Errorf("got %v", err)
	}
}

func FuzzBuild(f *testing.F) {
	f.Add([]byte(`[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","uid":"1","ownerReferences":[{"kind":"Pod","uid":"1","name":"a"}]},"spec":{"volumes":[1],"containers":{}}}]`), false)
	f.Add([]byte(`[{"kind":"Job","apiVersion":"batch/v1","metadata":{"annotations":1,"labels":"x"},"spec":{"selector":[],"template":[]}}]`), true)
	f.Fuzz(func(t *testing.T, data []byte, all bool) {
		var list []map[string]any
		if json.Unmarshal(data, &list) != nil {
			return
		}
		var archived []*unstructured.Unstructured
		for _, fields := range list {
			if fields != nil {
				archived = append(archived, &unstructured.Unstructured{Object: fields})
			}
		}
		in := input(archived...)
		in.All = all
		plan := restore.Build(in)
		current := map[types.UID]types.UID{}
		for i, step := range plan.Steps {
			if _, err := step.Object(current); err != nil {
				t.Fatal(err)
			}
			current[step.FormerUID] = types.UID(fmt.Sprint("new-", i))
		}
	})
}
