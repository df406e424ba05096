package restore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/restore"
)

// groups is a discovery client with fixed groups.
type groups struct {
	metav1.APIGroupList
	err error
}

func (g groups) ServerGroups() (*metav1.APIGroupList, error) { return &g.APIGroupList, g.err }

// fakeCluster has ConfigMaps, Pods, Namespaces, Deployments and ReplicaSets. It assigns UIDs.
func fakeCluster(objects ...runtime.Object) (cluster, *dynamicfake.FakeDynamicClient) {
	client := dynamicfake.NewSimpleDynamicClient(scheme.Scheme, objects...)
	n := 0
	client.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		n++
		create := action.(clienttesting.CreateAction)
		create.GetObject().(*unstructured.Unstructured).SetUID(types.UID(fmt.Sprintf("new-%d", n)))
		return false, nil, nil
	})
	mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{{Version: "v1"}, {Group: "apps", Version: "v1"}})
	for kind, scope := range map[string]meta.RESTScope{"ConfigMap": meta.RESTScopeNamespace, "Pod": meta.RESTScopeNamespace, "Namespace": meta.RESTScopeRoot} {
		mapper.Add(schema.GroupVersionKind{Version: "v1", Kind: kind}, scope)
	}
	for _, kind := range []string{"Deployment", "ReplicaSet"} {
		mapper.Add(schema.GroupVersionKind{Group: "apps", Version: "v1", Kind: kind}, meta.RESTScopeNamespace)
	}
	return cluster{objects: client, mapper: mapper, discovery: groups{}}, client
}

func configMap(name string, owners ...*unstructured.Unstructured) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
	o.SetName(name)
	o.SetNamespace("shop")
	o.SetUID(types.UID("old-" + name))
	var refs []metav1.OwnerReference
	for _, owner := range owners {
		refs = append(refs, metav1.OwnerReference{APIVersion: owner.GetAPIVersion(), Kind: owner.GetKind(), Name: owner.GetName(), UID: owner.GetUID(), Controller: ptr.To(len(refs) == 0)})
	}
	o.SetOwnerReferences(refs)
	return o
}

func namespace(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "Namespace"}}
	o.SetName(name)
	o.SetUID("ns-" + types.UID(name))
	return o
}

// planFor reads a cluster and plans the restore of objects.
func planFor(t *testing.T, c cluster, archived ...*unstructured.Unstructured) restore.Plan {
	t.Helper()
	live, err := c.read(t.Context(), restore.Keys(archived, ""), versionsOf(archived, ""), func(int) {})
	if err != nil {
		t.Fatal(err)
	}
	return restore.Build(restore.Input{Archived: archived, Live: live})
}

// carryOut carries out a plan.
func carryOut(ctx context.Context, c cluster, plan restore.Plan, change ...func(*executor)) *Report {
	e := &executor{cluster: c, report: &Report{}, progress: func(int, restore.Key) {}, restored: func(Item) {}}
	for _, f := range change {
		f(e)
	}
	e.run(ctx, plan)
	return e.report
}

func namesOf(items []Item) (names []string) {
	for _, i := range items {
		names = append(names, i.Name)
	}
	return names
}

var configMaps = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}

func read(t *testing.T, c cluster, name string) *unstructured.Unstructured {
	t.Helper()
	o, err := c.objects.Resource(configMaps).Namespace("shop").Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestExecute_OwnersHaveTheirNewUIDs(t *testing.T) {
	c, _ := fakeCluster(namespace("shop"))
	root, second := configMap("root"), configMap("second")
	middle := configMap("middle", root)
	leaf := configMap("leaf", middle, second)
	report := carryOut(t.Context(), c, planFor(t, c, leaf, middle, second, root))
	if diff := cmp.Diff([]string{"root", "middle", "second", "leaf"}, namesOf(report.Restored)); diff != "" {
		t.Errorf("%s\n%+v", diff, report)
	}
	refs := read(t, c, "leaf").GetOwnerReferences()
	if len(refs) != 2 || refs[0].UID != read(t, c, "middle").GetUID() || refs[1].UID != read(t, c, "second").GetUID() {
		t.Errorf("its owners are %+v", refs)
	}
}

func TestExecute_InterruptedAndRepeatedEndsInTheSameState(t *testing.T) {
	root := configMap("root")
	middle := configMap("middle", root)
	archived := []*unstructured.Unstructured{configMap("leaf", middle, root), middle, root}
	for after := range 4 {
		c, _ := fakeCluster(namespace("shop"))
		ctx, cancel := context.WithCancel(t.Context())
		if after == 0 {
			cancel()
		}
		report := carryOut(ctx, c, planFor(t, c, archived...), func(e *executor) {
			e.restored = func(Item) {
				if len(e.report.Restored) == after {
					cancel()
				}
			}
		})
		cancel()
		if len(report.Restored) != after || len(report.Remaining) != 3-after {
			t.Errorf("interrupted after %d: %+v", after, report)
		}
		again := carryOut(t.Context(), c, planFor(t, c, archived...))
		if len(again.Restored) != 3-after || len(again.Failures) != 0 {
			t.Errorf("repeated after %d: %+v", after, again)
		}
		refs := read(t, c, "leaf").GetOwnerReferences()
		if len(refs) != 2 || refs[0].UID != read(t, c, "middle").GetUID() || refs[1].UID != read(t, c, "root").GetUID() {
			t.Errorf("interrupted after %d: the owners are %+v", after, refs)
		}
		if third := planFor(t, c, archived...); len(third.Steps) != 0 || len(third.Existing) != 3 {
			t.Errorf("a third run would do something: %+v", third)
		}
	}
}

func TestExecute_FailuresStopOnlyDependents(t *testing.T) {
	c, client := fakeCluster(namespace("shop"))
	client.PrependReactor("create", "configmaps", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if o := action.(clienttesting.CreateAction).GetObject().(*unstructured.Unstructured); o.GetName() == "bad" {
			return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "bad", errors.New("quota exceeded"))
		}
		return false, nil, nil
	})
	bad := configMap("bad")
	report := carryOut(t.Context(), c, planFor(t, c, bad, configMap("below", bad), configMap("good")))
	if diff := cmp.Diff([]string{"good"}, namesOf(report.Restored)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"bad", "below"}, namesOf(report.Failures)); diff != "" || !strings.Contains(report.Failures[0].Message, "quota exceeded") {
		t.Errorf("%s: %+v", diff, report.Failures)
	}
}

// Another run of the same restore, a restored controller and others may all create an object after the plan
// was made.
func TestExecute_ObjectsCreatedMeanwhile(t *testing.T) {
	for claim, c := range map[string]struct {
		change func(plan restore.Plan, o *unstructured.Unstructured)
		check  func(*Report) []Item
	}{
		"by another run": {func(plan restore.Plan, o *unstructured.Unstructured) {
			created, err := plan.Steps[1].Object(map[types.UID]types.UID{"old-root": "new-1"})
			if err != nil {
				t.Fatal(err)
			}
			o.SetAnnotations(created.GetAnnotations())
		}, func(r *Report) []Item { return r.Existing }},
		"by the controller": {func(_ restore.Plan, o *unstructured.Unstructured) {
			o.SetOwnerReferences([]metav1.OwnerReference{{Kind: "ConfigMap", Name: "root", UID: "new-1", Controller: ptr.To(true)}})
		}, func(r *Report) []Item { return r.Left }},
		"by others": {func(restore.Plan, *unstructured.Unstructured) {}, func(r *Report) []Item { return r.Failures }},
	} {
		t.Run(claim, func(t *testing.T) {
			to, client := fakeCluster(namespace("shop"))
			root := configMap("root")
			plan := planFor(t, to, root, configMap("taken", root))
			report := carryOut(t.Context(), to, plan, func(e *executor) {
				e.restored = func(i Item) {
					if i.Name != "root" {
						return
					}
					o := configMap("taken")
					o.SetUID("other")
					c.change(plan, o)
					if err := client.Tracker().Add(o); err != nil {
						t.Fatal(err)
					}
				}
			})
			if got := c.check(report); len(got) != 1 || got[0].Name != "taken" {
				t.Errorf("got %+v", report)
			}
		})
	}
}

func TestExecute_DryRunsCheckDependentsOfObjectsThatDoNotExist(t *testing.T) {
	c, client := fakeCluster()
	ns, root := namespace("fresh"), configMap("root")
	inside := configMap("inside")
	inside.SetNamespace("fresh")
	plan := planFor(t, c, ns, inside)
	var options []metav1.CreateOptions
	client.PrependReactor("create", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create := action.(clienttesting.CreateActionImpl)
		options = append(options, create.CreateOptions)
		return true, create.GetObject(), nil
	})
	report := carryOut(t.Context(), c, plan, func(e *executor) { e.dryRun = true })
	if len(report.Restored) != 1 || len(report.Unchecked) != 1 || !strings.Contains(report.Unchecked[0].Message, "its namespace has to be restored first") {
		t.Errorf("got %+v", report)
	}
	other, _ := fakeCluster(namespace("shop"))
	report = carryOut(t.Context(), cluster{objects: c.objects, mapper: c.mapper, discovery: c.discovery}, planFor(t, other, configMap("leaf", root), root), func(e *executor) { e.dryRun = true })
	if len(report.Restored) != 2 || len(report.Failures) != 0 {
		t.Errorf("a dependent: got %+v", report)
	}
	for _, o := range options {
		if diff := cmp.Diff([]string{metav1.DryRunAll}, o.DryRun); diff != "" {
			t.Error(diff)
		}
	}
}

func TestRead_UnknownIsNotAbsent(t *testing.T) {
	key := restore.KeyOf(configMap("a"))
	for claim, c := range map[string]struct {
		err  error
		want restore.Presence
	}{
		"forbidden":                              {apierrors.NewForbidden(configMaps.GroupResource(), "a", errors.New("no")), restore.Unknown},
		"the page of a proxy":                    {apierrors.NewGenericServerResponse(404, "get", configMaps.GroupResource(), "a", "nope", 0, true), restore.Unknown},
		"a server that is down":                  {errors.New("connection refused"), restore.Unknown},
		"not found":                              {apierrors.NewNotFound(configMaps.GroupResource(), "a"), restore.Absent},
		"not found, with a name that is another": {apierrors.NewNotFound(configMaps.GroupResource(), "b"), restore.Unknown},
	} {
		from, client := fakeCluster()
		client.PrependReactor("get", "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, c.err })
		live, err := from.read(t.Context(), []restore.Key{key}, nil, func(int) {})
		if err != nil || live[key].Presence != c.want {
			t.Errorf("%s: got %+v: %v", claim, live[key], err)
		}
	}
}

func TestRead_TypesAreUnservedOnlyIfTheServerSaysSo(t *testing.T) {
	key := restore.Key{GroupKind: schema.GroupKind{Group: "example.com", Kind: "Widget"}, Namespace: "shop", Name: "w"}
	group := metav1.APIGroup{Name: "example.com", Versions: []metav1.GroupVersionForDiscovery{{Version: "v1"}, {Version: "v2"}}}
	serving := func(kinds ...string) func(schema.GroupVersion) (*metav1.APIResourceList, error) {
		return func(gv schema.GroupVersion) (*metav1.APIResourceList, error) {
			list := &metav1.APIResourceList{}
			for _, kind := range kinds {
				if version, name, _ := strings.Cut(kind, "/"); version == gv.Version {
					list.APIResources = append(list.APIResources, metav1.APIResource{Kind: name})
				}
			}
			return list, nil
		}
	}
	for claim, c := range map[string]struct {
		groups    groups
		resources func(schema.GroupVersion) (*metav1.APIResourceList, error)
		want      restore.Presence
	}{
		"a group that is not served":     {groups{}, serving(), restore.Unserved},
		"a kind that is not served":      {groups{APIGroupList: metav1.APIGroupList{Groups: []metav1.APIGroup{group}}}, serving("v1/Other"), restore.Unserved},
		"another version":                {groups{APIGroupList: metav1.APIGroupList{Groups: []metav1.APIGroup{group}}}, serving("v2/Widget"), restore.Unserved},
		"discovery that fails":           {groups{err: errors.New("down")}, serving(), restore.Unknown},
		"a group whose discovery fails":  {groups{APIGroupList: metav1.APIGroupList{Groups: []metav1.APIGroup{group}}}, func(schema.GroupVersion) (*metav1.APIResourceList, error) { return nil, errors.New("down") }, restore.Unknown},
		"a kind that is served just now": {groups{APIGroupList: metav1.APIGroupList{Groups: []metav1.APIGroup{group}}}, serving("v1/Widget"), restore.Unknown},
	} {
		from, _ := fakeCluster()
		from.discovery, from.resources = c.groups, c.resources
		live, err := from.read(t.Context(), []restore.Key{key}, map[restore.Key]string{key: "v1"}, func(int) {})
		if err != nil || live[key].Presence != c.want {
			t.Errorf("%s: got %+v: %v", claim, live[key], err)
		}
	}
}
