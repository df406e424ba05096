package restore_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/restore"
)

func terminating(o *unstructured.Unstructured) *unstructured.Unstructured {
	o = o.DeepCopy()
	now := metav1.NewTime(start)
	o.SetDeletionTimestamp(&now)
	return o
}

func clusterScoped(apiVersion, kind, name string) *unstructured.Unstructured {
	o := object(apiVersion, kind, name)
	o.SetNamespace("")
	return o
}

func namespaceObject() *unstructured.Unstructured {
	return clusterScoped("v1", "Namespace", "shop")
}

func keysOf(steps []restore.Step) (keys []string) {
	for _, s := range steps {
		keys = append(keys, s.Key.String())
	}
	return keys
}

func TestBuild_RestoresANamespaceBeforeItsObjects(t *testing.T) {
	in := input(configMap("a"), namespaceObject(), configMap("kube-root-ca.crt"), object("v1", "ServiceAccount", "default"))
	in.Live[restore.KeyOf(namespaceObject())] = restore.Live{Presence: restore.Absent}
	plan := restore.Build(in)
	if diff := cmp.Diff([]string{"Namespace shop", "ConfigMap shop/a"}, keysOf(plan.Steps)); diff != "" {
		t.Error(diff)
	}
	if len(plan.Left) != 2 || len(plan.Conflicts) != 0 {
		t.Errorf("what Kubernetes creates in each namespace: %+v", plan)
	}
}

func TestBuild_RestoresADefinitionBeforeObjectsOfItsType(t *testing.T) {
	definition := clusterScoped("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com")
	definition.Object["spec"] = map[string]any{"group": "example.com", "names": map[string]any{"kind": "Widget"}}
	widget := object("example.com/v1", "Widget", "w")
	in := input(widget, definition)
	in.Live[restore.KeyOf(widget)] = restore.Live{Presence: restore.Unserved}
	plan := restore.Build(in)
	if len(plan.Conflicts) != 0 || len(plan.Steps) != 2 || plan.Steps[1].Key.Kind != "Widget" {
		t.Errorf("got %+v", plan)
	}
}

func TestBuild_ReportsAConflictOnceForWhatIsBelowIt(t *testing.T) {
	root := configMap("root")
	middle := configMap("middle", root)
	in := input(root, middle, configMap("leaf", middle), configMap("other"))
	in.Live[restore.KeyOf(root)] = present(configMap("root"))
	plan := restore.Build(in)
	if len(plan.Conflicts) != 1 || len(plan.Blocked) != 2 || len(plan.Steps) != 1 {
		t.Errorf("got %+v", plan)
	}
	in = input(configMap("a"), configMap("b"))
	in.Live[restore.KeyOf(namespaceObject())] = restore.Live{Presence: restore.Absent}
	if plan := restore.Build(in); len(plan.Conflicts) != 1 || len(plan.Blocked) != 2 || len(plan.Steps) != 0 {
		t.Errorf("a namespace: got %+v", plan)
	}
}

func TestBuild_AnotherLiveOwnerKeepsADependent(t *testing.T) {
	leaving, staying := configMap("leaving"), configMap("staying")
	in := input(configMap("dependent", leaving, staying))
	in.Live[restore.KeyOf(leaving)] = present(terminating(leaving))
	in.Live[restore.KeyOf(staying)] = present(staying)
	plan := restore.Build(in)
	if len(plan.Steps) != 1 || len(plan.Conflicts) != 0 {
		t.Fatalf("got %+v", plan)
	}
	o, err := plan.Steps[0].Object(nil)
	if refs := o.GetOwnerReferences(); err != nil || len(refs) != 1 || refs[0].Name != "staying" {
		t.Errorf("its owners are %+v: %v", refs, err)
	}
}

func TestBuild_OwnersLeftToControllersNeedAll(t *testing.T) {
	set := object("apps/v1", "ReplicaSet", "web")
	pod := object("v1", "Pod", "web-a", set)
	in := input(set, pod, configMap("of-pod", pod))
	plan := restore.Build(in)
	if len(plan.Conflicts) != 1 || !strings.Contains(plan.Conflicts[0].Message, "use --all to restore the owner too") {
		t.Errorf("got %+v", plan)
	}
	if in.All = true; len(restore.Build(in).Steps) != 3 {
		t.Errorf("with --all, got %+v", restore.Build(in))
	}
}

func TestBuild_LeavesWhatRestoredControllersHaveCreated(t *testing.T) {
	deployment := object("apps/v1", "Deployment", "web")
	set := object("apps/v1", "ReplicaSet", "web-1", deployment)
	in := input(deployment, set, object("v1", "Pod", "web-1-a", set))
	in.All = true
	carryOut(t, in, restore.Build(in), 1)
	current := in.Live[restore.KeyOf(deployment)].Object
	in.Live[restore.KeyOf(set)] = present(object("apps/v1", "ReplicaSet", "web-1", current))
	plan := restore.Build(in)
	if len(plan.Left) != 1 || len(plan.Adopted) != 1 || len(plan.Conflicts) != 0 || len(plan.Existing) != 1 || len(plan.Steps) != 1 {
		t.Fatalf("got %+v", plan)
	}
	o, err := plan.Steps[0].Object(map[types.UID]types.UID{"old-web-1": "now"})
	if err != nil || o.GetOwnerReferences()[0].UID != "now" {
		t.Errorf("its owners are %+v: %v", o.GetOwnerReferences(), err)
	}
}

func TestBuild_ClaimsComeBeforeTheirStatefulSet(t *testing.T) {
	set := object("apps/v1", "StatefulSet", "db")
	claim := object("v1", "PersistentVolumeClaim", "data-db-0", set)
	plan := restore.Build(input(set, claim))
	if diff := cmp.Diff([]string{"PersistentVolumeClaim shop/data-db-0", "StatefulSet.apps shop/db"}, keysOf(plan.Steps)); diff != "" {
		t.Error(diff)
	}
	if o, err := plan.Steps[0].Object(nil); err != nil || len(o.GetOwnerReferences()) != 0 {
		t.Errorf("its owners are %+v: %v", o.GetOwnerReferences(), err)
	}
}

func TestBuild_FinishedPodsDoNotRunAgain(t *testing.T) {
	pod := object("v1", "Pod", "once")
	pod.Object["status"] = map[string]any{"phase": "Succeeded"}
	in := input(pod)
	if plan := restore.Build(in); len(plan.Left) != 1 || len(plan.Steps) != 0 {
		t.Errorf("got %+v", plan)
	}
	if in.All = true; len(restore.Build(in).Steps) != 1 {
		t.Errorf("with --all, got %+v", restore.Build(in))
	}
}

func TestBuild_KeepsAddressesIfRequested(t *testing.T) {
	service := object("v1", "Service", "web")
	service.Object["spec"] = map[string]any{"clusterIP": "10.0.0.1", "ports": []any{map[string]any{"nodePort": int64(30080)}}}
	in := input(service)
	in.KeepAddresses = true
	o, err := restore.Build(in).Steps[0].Object(nil)
	if diff := cmp.Diff(service.Object["spec"], o.Object["spec"]); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

func TestBuild_ClaimsKeepTheVolumeWithTheirData(t *testing.T) {
	claim := object("v1", "PersistentVolumeClaim", "data")
	claim.Object["spec"] = map[string]any{"volumeName": "v"}
	volume := func(uid string) *unstructured.Unstructured {
		v := clusterScoped("v1", "PersistentVolume", "v")
		v.Object["spec"] = map[string]any{"claimRef": map[string]any{"namespace": "shop", "name": "data", "uid": uid, "resourceVersion": "1"}}
		return v
	}
	key := restore.KeyOf(volume(""))
	for claimed, c := range map[string]struct {
		change  func(*restore.Input)
		keeps   bool
		rebinds bool
		warning string // empty: none
	}{
		"a volume that was its own":      {func(in *restore.Input) { in.Live[key] = present(volume("old-data")) }, true, true, ""},
		"a volume of another claim":      {func(in *restore.Input) { in.Live[key] = present(volume("other")) }, false, false, "belongs to another claim now"},
		"a volume that was deleted":      {func(in *restore.Input) { in.Live[key] = restore.Live{Presence: restore.Absent} }, false, false, "was deleted, with its data"},
		"a volume that is being deleted": {func(in *restore.Input) { in.Live[key] = present(terminating(volume("old-data"))) }, false, false, "was deleted, with its data"},
		"a volume that is not readable":  {func(*restore.Input) {}, true, false, "could not be read"},
		"a volume that is restored": {func(in *restore.Input) {
			in.Archived = append(in.Archived, volume("old-data"))
			in.Live[key] = restore.Live{Presence: restore.Absent}
		}, true, false, ""},
		"a copy": {func(in *restore.Input) {
			in.Namespace = "copy"
			in.Live[restore.Key{GroupKind: schema.GroupKind{Kind: "PersistentVolumeClaim"}, Namespace: "copy", Name: "data"}] = restore.Live{Presence: restore.Absent}
			in.Live[key] = present(volume("old-data"))
		}, false, false, "belongs to the claim that it was"},
	} {
		t.Run(claimed, func(t *testing.T) {
			in := input(claim)
			c.change(&in)
			plan := restore.Build(in)
			step := plan.Steps[len(plan.Steps)-1]
			o, err := step.Object(map[types.UID]types.UID{})
			if err != nil {
				t.Fatal(err)
			}
			name, _, _ := unstructured.NestedString(o.Object, "spec", "volumeName")
			if (name == "v") != c.keeps || (step.After.Volume == "v") != c.rebinds {
				t.Errorf("it has the volume %q, and takes over %q", name, step.After.Volume)
			}
			if (c.warning == "") != (len(plan.Warnings) == 0) || c.warning != "" && !strings.Contains(plan.Warnings[0].Message, c.warning) {
				t.Errorf("warnings: %+v", plan.Warnings)
			}
		})
	}
}

func TestBuild_EndpointsAreLeftToTheirService(t *testing.T) {
	service := object("v1", "Service", "web")
	service.Object["spec"] = map[string]any{"selector": map[string]any{"app": "web"}}
	endpoints := object("v1", "Endpoints", "web")
	endpoints.SetUID("old-endpoints")
	if plan := restore.Build(input(service, endpoints)); len(plan.Left) != 1 || len(plan.Steps) != 1 {
		t.Errorf("got %+v", plan)
	}
	if plan := restore.Build(input(endpoints)); len(plan.Left) != 0 || len(plan.Steps) != 1 {
		t.Errorf("without its Service: got %+v", plan)
	}
}

func TestKeys_AreThoseThatAPlanReads(t *testing.T) {
	claim := object("v1", "PersistentVolumeClaim", "data", object("apps/v1", "StatefulSet", "db"))
	claim.Object["spec"] = map[string]any{"volumeName": "v"}
	var got []string
	for _, k := range restore.Keys([]*unstructured.Unstructured{claim, claim, namespaceObject()}, "copy") {
		got = append(got, k.String())
	}
	want := []string{"PersistentVolumeClaim copy/data", "Namespace copy", "StatefulSet.apps copy/db", "StatefulSet.apps db", "PersistentVolume v", "Namespace shop"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestStep_KnowsWhatItHasCreated(t *testing.T) {
	in := input(configMap("a"))
	plan := restore.Build(in)
	created := carryOut(t, in, plan, 1)[0]
	if !plan.Steps[0].Restores(created) || plan.Steps[0].Restores(terminating(created)) || plan.Steps[0].Restores(configMap("a")) {
		t.Error("it takes another object for its own, or does not know its own")
	}
}

func TestManifest_HasNothingOfTheOldObject(t *testing.T) {
	claim := object("v1", "PersistentVolumeClaim", "data", configMap("owner"))
	claim.Object["spec"] = map[string]any{"volumeName": "v", "storageClassName": "s"}
	claim.Object["status"] = map[string]any{"phase": "Bound"}
	claim.SetFinalizers([]string{"kubernetes.io/pvc-protection"})
	want := map[string]any{
		"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": map[string]any{"name": "data", "namespace": "shop"},
		"spec": map[string]any{"storageClassName": "s"},
	}
	if diff := cmp.Diff(want, restore.Manifest(claim).Object); diff != "" {
		t.Error(diff)
	}
}

func TestBuild_TheNewestObjectOfANameIsRestored(t *testing.T) {
	newer, older := configMap("root"), configMap("root")
	older.SetUID("older-root")
	ofOlder := configMap("a-dependent", older) // is planned first
	in := input(newer, older, ofOlder, configMap("below", ofOlder))
	plan := restore.Build(in)
	if len(plan.Steps) != 1 || plan.Steps[0].FormerUID != newer.GetUID() || len(plan.Left) != 3 || len(plan.Conflicts) != 0 {
		t.Errorf("got %+v", plan)
	}
}

func TestBuild_LeavesWhatWasCollectedRightly(t *testing.T) {
	gone := configMap("gone")
	dependent := configMap("dependent", gone)
	in := input(dependent, configMap("below", dependent), configMap("alone"))
	in.LeaveUnowned = true
	plan := restore.Build(in)
	if len(plan.Left) != 2 || len(plan.Steps) != 1 || len(plan.Conflicts) != 0 {
		t.Errorf("got %+v", plan)
	}
	in.Live[restore.KeyOf(gone)] = restore.Live{}
	if plan := restore.Build(in); len(plan.Conflicts) != 1 {
		t.Errorf("an owner that could not be read is not gone: %+v", plan)
	}
}

func TestBuild_ExistingClaimsStillGetTheirVolume(t *testing.T) {
	claim := object("v1", "PersistentVolumeClaim", "data")
	claim.Object["spec"] = map[string]any{"volumeName": "v"}
	v := clusterScoped("v1", "PersistentVolume", "v")
	v.Object["spec"] = map[string]any{"claimRef": map[string]any{"namespace": "shop", "name": "data", "uid": "old-data"}}
	in := input(claim)
	in.Live[restore.KeyOf(v)] = present(v)
	carryOut(t, in, restore.Build(in), 1)
	if again := restore.Build(in); len(again.Existing) != 1 || again.Existing[0].After.Volume != "v" {
		t.Errorf("got %+v", again)
	}
}
