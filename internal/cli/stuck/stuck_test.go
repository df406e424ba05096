package stuck

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

var at = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// found is an object that has been terminating for some minutes.
func found(kind, name string, minutes int, names ...string) Item {
	deleted := metav1.NewTime(at.Add(-time.Duration(minutes) * time.Minute))
	resource := strings.ToLower(kind) + "s"
	return Item{
		Object: finalizers.Object{
			Object:   &metav1.ObjectMeta{Namespace: "shop", Name: name, DeletionTimestamp: &deleted, Finalizers: names},
			Kind:     schema.GroupVersionKind{Version: "v1", Kind: kind},
			Resource: schema.GroupResource{Resource: resource},
		},
		Resource: resource,
	}
}

// by is one whose finalizers somebody has put there.
func by(f Item, manager string) Item {
	var fields strings.Builder
	for _, finalizer := range f.GetFinalizers() {
		fmt.Fprintf(&fields, `,"v:\"%s\"":{}`, finalizer)
	}
	raw := `{"f:metadata":{"f:finalizers":{".":{}` + fields.String() + `}}}`
	f.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: manager, FieldsV1: metav1.NewFieldsV1(raw)}})
	return f
}

// groupLines is what a report says of the groups: the holder, whose it is, and the objects.
func groupLines(groups []Group) []string {
	var lines []string
	for _, g := range groups {
		var names []string
		for _, o := range g.Objects {
			names = append(names, o.Name)
		}
		lines = append(lines, fmt.Sprintf("%s of %s: %d, %s", g.Finalizer, g.Owner, g.Count, strings.Join(names, " ")))
	}
	return lines
}

// book has two policies that hold Secrets, and one that holds ConfigMaps.
func book() *finalizers.Resources {
	b := &finalizers.Resources{Installed: true}
	for name, resource := range map[string]string{"ask-before": "secrets", "keep": "configmaps"} {
		p := finalizers.Policy{Kind: v1alpha1.KindClusterGCPolicy, ObjectMeta: metav1.ObjectMeta{Name: name}}
		p.Spec.Resources = []v1alpha1.ResourceRule{{APIGroups: []string{""}, Resources: []string{resource}}}
		p.Spec.Mode, p.Spec.Fixed = v1alpha1.ModeEnforce, &v1alpha1.FixedVerdicts{Propagate: &v1alpha1.FixedVerdict{}}
		b.Policies = append(b.Policies, p)
	}
	return b
}

func TestGroupByFinalizer(t *testing.T) {
	const acme, other = "acme.example.com/a", "other.example.com/b"
	for claim, c := range map[string]struct {
		found []Item
		want  []string
	}{
		"nothing is no group": {nil, nil},
		"the longest comes first": {
			[]Item{by(found("ConfigMap", "young", 1, acme), "acme"), by(found("ConfigMap", "old", 9, acme), "acme")},
			[]string{acme + " of acme: 2, old young"},
		},
		"who holds most comes first": {
			[]Item{by(found("Secret", "x", 9, acme), "acme"), by(found("Secret", "y", 2, other), "o"), by(found("Secret", "z", 1, other), "o")},
			[]string{other + " of o: 2, y z", acme + " of acme: 1, x"},
		},
		"an object with two finalizers is in two groups": {
			[]Item{by(found("Secret", "x", 9, acme, other), "acme")},
			[]string{acme + " of acme: 1, x", other + " of acme: 1, x"},
		},
		"a finalizer that several have put there is of all of them": {
			[]Item{by(found("Secret", "x", 3, acme), "b"), by(found("Secret", "y", 2, acme), "a"), by(found("Secret", "z", 1, acme), "b")},
			[]string{acme + " of b, a: 3, x y z"},
		},
		"who is known counts for those that nobody is known of": {
			[]Item{found("Secret", "x", 3, acme), by(found("Secret", "y", 2, acme), "acme")},
			[]string{acme + " of acme: 2, x y"},
		},
		"holds are told apart by the policies that they are for": {
			[]Item{found("Secret", "x", 3, graph.Hold), found("Secret", "y", 2, graph.Hold), found("ConfigMap", "z", 1, graph.Hold)},
			[]string{graph.Hold + " of Gleaner, for ClusterGCPolicy ask-before: 2, x y", graph.Hold + " of Gleaner, for ClusterGCPolicy keep: 1, z"},
		},
	} {
		t.Run(claim, func(t *testing.T) {
			if diff := cmp.Diff(c.want, groupLines(GroupByFinalizer(c.found, book()))); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// What helps one object may be wrong for the next.
func TestAdvice_ForSeveralObjects(t *testing.T) {
	const acme = "acme.example.com/a"
	for claim, c := range map[string]struct {
		finalizer, one, several string
	}{
		"somebody else's": {acme, "gleaner release secrets/x -n shop --finalizer " + acme, "gleaner release --all --finalizer " + acme},
		"a hold":          {graph.Hold, "gleaner release secrets/x -n shop", "gleaner release --all"},
	} {
		t.Run(claim, func(t *testing.T) {
			x, y := found("Secret", "x", 2, c.finalizer), found("Secret", "y", 1, c.finalizer)
			if do := GroupByFinalizer([]Item{x}, book())[0].Advice; !strings.HasSuffix(do, c.one) {
				t.Errorf("about one: %s", do)
			}
			if do := GroupByFinalizer([]Item{x, y}, book())[0].Advice; !strings.HasSuffix(do, c.several) {
				t.Errorf("about two: %s", do)
			}
		})
	}
}

func TestGroupByFinalizer_WithoutFinalizers(t *testing.T) {
	pod, lost := found("Pod", "web-0", 1), found("Pod", "unscheduled", 1)
	pod.Node = "node-1"
	for want, f := range map[string]Item{
		"(no finalizer) of the kubelet of node node-1: 1, web-0": pod,
		"(no finalizer) of the API server: 1, unscheduled":       lost,
		"(no finalizer) of the API server: 1, x":                 found("Secret", "x", 1),
	} {
		groups := GroupByFinalizer([]Item{f}, book())
		if diff := cmp.Diff([]string{want}, groupLines(groups)); diff != "" {
			t.Errorf("(-want +got):\n%s", diff)
		}
		if groups[0].Advice == "" || groups[0].Objects[0].Finalizer != nil {
			t.Errorf("%s: to do: %q, by %v", want, groups[0].Advice, groups[0].Objects[0].Finalizer)
		}
	}
}

// namespace is one that is terminating, with conditions that are true.
func namespace(name string, conditions ...corev1.NamespaceConditionType) Item {
	f := found("Namespace", name, 1)
	f.SetNamespace("")
	f.Namespace = &corev1.Namespace{Spec: corev1.NamespaceSpec{Finalizers: []corev1.FinalizerName{corev1.FinalizerKubernetes}}}
	for _, c := range conditions {
		f.Namespace.Status.Conditions = append(f.Namespace.Status.Conditions, corev1.NamespaceCondition{Type: c, Status: corev1.ConditionTrue, Message: "because"})
	}
	return f
}

func TestNamespace_IsInGroupForEachCondition(t *testing.T) {
	both := namespace("both", corev1.NamespaceContentRemaining, corev1.NamespaceFinalizersRemaining)
	both.Namespace.Status.Conditions = append(both.Namespace.Status.Conditions,
		corev1.NamespaceCondition{Type: corev1.NamespaceDeletionDiscoveryFailure, Status: corev1.ConditionFalse})
	one, fresh := namespace("one", corev1.NamespaceContentRemaining), namespace("fresh")
	groups := GroupByFinalizer([]Item{both, one, fresh}, book())
	want := []string{
		"(namespace) NamespaceContentRemaining of the namespace controller: 2, both one",
		"(namespace) NamespaceFinalizersRemaining of the namespace controller: 1, both",
		"(namespace) kubernetes of the namespace controller: 1, fresh",
	}
	if diff := cmp.Diff(want, groupLines(groups)); diff != "" {
		t.Fatalf("(-want +got):\n%s", diff)
	}
	conditions := []string{"NamespaceContentRemaining: because", "NamespaceFinalizersRemaining: because"}
	if diff := cmp.Diff(conditions, groups[0].Objects[0].Conditions); diff != "" {
		t.Errorf("its conditions (-want +got):\n%s", diff)
	}
}

func TestLongerThan(t *testing.T) {
	ago := func(d time.Duration) *metav1.Time {
		deleted := metav1.NewTime(at.Add(-d))
		return &deleted
	}
	for claim, c := range map[string]struct {
		deleted *metav1.Time
		want    bool
	}{
		"it is not being deleted":         {nil, false},
		"for longer":                      {ago(5*time.Minute + 1), true},
		"for just as long":                {ago(5 * time.Minute), false},
		"its grace period is not over":    {ago(-time.Minute), false},
		"it was deleted a moment ago":     {ago(0), false},
		"since long before anybody asked": {ago(24 * time.Hour), true},
	} {
		if got := longerThan(c.deleted, 5*time.Minute, at); got != c.want {
			t.Errorf("%s: %t", claim, got)
		}
	}
}

func TestTooManyOwners(t *testing.T) {
	var objects []*unstructured.Unstructured
	create := func(name string, minutes, owners int, of func(int) types.UID) *unstructured.Unstructured {
		o := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "v1", "kind": "ConfigMap"}}
		o.SetName(name)
		o.SetNamespace("shop")
		o.SetUID(types.UID(name))
		o.SetCreationTimestamp(metav1.NewTime(at.Add(-time.Duration(minutes) * time.Minute)))
		var refs []metav1.OwnerReference
		for i := range owners {
			refs = append(refs, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: string(of(i)), UID: of(i)})
		}
		o.SetOwnerReferences(refs)
		objects = append(objects, o)
		return o
	}
	there := func(i int) types.UID { return types.UID(fmt.Sprint("owner-", i)) }
	gone := func(i int) types.UID { return types.UID(fmt.Sprint("gone-", i)) }
	for i := range 100 {
		create(string(there(i)), 10, 0, nil)
	}
	create("few", 10, graph.ManyOwners, gone)
	create("young", 1, 100, gone)
	create("owned", 10, 100, there)
	create("partly", 10, 100, func(i int) types.UID {
		if i < 30 {
			return gone(i)
		}
		return there(i)
	})
	create("thousands", 10, graph.MaxOwners+500, gone)
	deleted := metav1.NewTime(at)
	create("leaving", 10, 100, gone).SetDeletionTimestamp(&deleted)
	s, err := survey.Files(objects, func() time.Time { return at })
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range tooManyOwners(s, at, 5*time.Minute) {
		got = append(got, fmt.Sprintf("%s %s: %d, %d not found", o.Resource, o.Name, o.Owners, o.NotFound))
	}
	want := []string{"configmaps thousands: 10500, 10500 not found", "configmaps partly: 100, 30 not found"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
