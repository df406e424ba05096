package policies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/crds"
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/policystatus"
	"github.com/gleaner-dev/gleaner/operator/run"
	"github.com/gleaner-dev/gleaner/test/inprocess"
)

// memoryArchive is an archive in memory.
type memoryArchive struct {
	status policystatus.Archive

	mu      sync.Mutex // covers what follows
	fails   error
	objects map[types.UID]*unstructured.Unstructured
}

func newMemoryArchive() *memoryArchive {
	a := &memoryArchive{objects: map[types.UID]*unstructured.Unstructured{}}
	a.status = policystatus.Archive{Store: &latest.Value[policystatus.Store]{}, Archived: func(types.UID) policystatus.Archived {
		a.mu.Lock()
		defer a.mu.Unlock()
		return policystatus.Archived{Objects: int64(len(a.objects))}
	}}
	a.status.Store.Store(policystatus.Store{State: policystatus.StoreReady})
	return a
}

// Archive implements policyset.Archiver.
func (a *memoryArchive) Archive(_ context.Context, _ *policyset.Archive, o *unstructured.Unstructured) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fails == nil {
		a.objects[o.GetUID()] = o.DeepCopy()
	}
	return "stored in memory", a.fails
}

func (a *memoryArchive) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fails = err
}

// has reports whether an object was archived, with all its data.
func (a *memoryArchive) has(o *unstructured.Unstructured) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	archived, ok := a.objects[o.GetUID()]
	if !ok {
		return false
	}
	data, _, _ := unstructured.NestedFieldNoCopy(archived.Object, "data")
	wanted, _, _ := unstructured.NestedFieldNoCopy(o.Object, "data")
	return fmt.Sprint(data) == fmt.Sprint(wanted) && archived.GetDeletionTimestamp() != nil
}

// use has a collector archive in a.
func (a *memoryArchive) use(o *run.Options) { o.Archiver, o.Archive = a, &a.status }

func (o *dedicatedEnv) expectArchived(a *memoryArchive, objects ...*unstructured.Unstructured) {
	o.Helper()
	o.waitForDeletion(objects...)
	for _, object := range objects {
		if !a.has(object) {
			o.Errorf("%s is gone, and was not archived", object.GetName())
		}
	}
}

const archivesConfigMaps = `
kind: ClusterArchivePolicy
metadata: {name: data}
spec:
  resources: [{apiGroups: [""], resources: [configmaps, pods]}]
  objectSelector: {matchLabels: {tier: data}}`

var data = map[string]string{"tier": "data"}

func TestArchivePolicy_HoldsObjectsUntilTheyAreArchived(t *testing.T) {
	o := newDedicatedEnv(t)
	const entry = "archive.cluster.gleaner.dev/data"
	existing, other := o.createObject("ConfigMap", "existing", data), o.createObject("ConfigMap", "other", nil)
	p := o.apply(archivesConfigMaps)
	o.waitForCondition(p, "Archiving", metav1.ConditionFalse, "NoStore", "start it with --archive")
	o.waitForCondition(p, "Accepted", metav1.ConditionTrue, "Accepted", "pods get no finalizer")
	if found := o.get(existing).GetFinalizers(); len(found) != 0 {
		t.Errorf("without an archive, it has %v", found)
	}

	o.stopOperator()
	a := newMemoryArchive()
	o.startOperatorWith(a.use)
	o.waitForCondition(p, "Archiving", metav1.ConditionTrue, "Archiving", "")
	o.waitForCondition(p, "Attached", metav1.ConditionTrue, "Attached", "")
	o.waitForFinalizers(existing, entry)
	created := o.createObject("ConfigMap", "created", data)
	o.waitForFinalizers(created, entry)

	a.fail(errors.New("disk full"))
	o.delete(existing)
	o.delete(other)
	o.waitForDeletion(other)
	o.waitForStatus(p, "held", 1)
	o.waitForStuck(p, existing, "Error", "disk full")
	a.fail(nil)
	o.delete(created)
	o.expectArchived(a, existing, created)
	if a.has(other) {
		t.Error("an object was archived that the policy does not select")
	}
	o.waitForStatus(p, "archived", 2)

	last := o.createObject("ConfigMap", "last", data)
	o.waitForFinalizers(last, entry)
	o.delete(p)
	o.waitForDeletion(p)
	o.waitForFinalizers(last)
}

// The namespace controller deletes the policy and the objects in any order.
func TestArchivePolicy_ArchivesANamespaceThatIsDeleted(t *testing.T) {
	o := newDedicatedEnv(t)
	o.stopOperator()
	a := newMemoryArchive()
	o.startOperatorWith(a.use)
	o.apply("{kind: Namespace, metadata: {name: NS-ending}}")
	p := o.apply(`
kind: ArchivePolicy
metadata: {name: own, namespace: NS-ending}
spec:
  resources: [{apiGroups: [""], resources: [configmaps, secrets]}]
  recipients: [age1gde3ncmahlqd9gg50tanl99r960llztrhfapnmx853s4tjum03uqfssgdh]`)
	o.waitForCondition(p, "Attached", metav1.ConditionTrue, "AfterCreation", "")
	var objects []*unstructured.Unstructured
	for i := range 30 {
		kind := []string{"ConfigMap", "Secret"}[i%2]
		objects = append(objects, o.apply(fmt.Sprintf("{kind: %s, metadata: {name: o%d, namespace: NS-ending}}", kind, i)))
	}
	for _, object := range objects {
		o.waitForFinalizers(object, o.ns+"-ending.archive.gleaner.dev/own")
	}
	namespace := &unstructured.Unstructured{Object: map[string]any{"kind": "Namespace"}}
	namespace.SetName(o.ns + "-ending")
	o.delete(namespace)
	o.expectArchived(a, objects...)
	o.waitForDeletion(p)
	o.eventually(func() error {
		_, err := o.client(namespace).Get(t.Context(), namespace.GetName(), metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return errorf("the namespace still exists: %v", err)
		}
		return nil
	})
}

// The capability is optional, and may be installed at any time.
func TestArchivePolicies_WorkWheneverTheirTypesAreInstalled(t *testing.T) {
	o := newDedicatedEnv(t)
	o.stopOperator()
	definitions, err := crds.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	client := apiextensions.NewForConfigOrDie(o.config).ApiextensionsV1().CustomResourceDefinitions()
	var removed []string
	for _, d := range definitions {
		if crds.Component(d.Name) == "archive" {
			if err := client.Delete(t.Context(), d.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			removed = append(removed, d.Name)
		}
	}
	o.eventually(func() error {
		list, err := client.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, d := range list.Items {
			if slices.Contains(removed, d.Name) {
				return errorf("%s still exists", d.Name)
			}
		}
		return nil
	})
	o.startOperator()
	gc := o.applyPolicy(governingPolicy + `{collect: {decision: Orphan}}`)
	o.waitForCondition(gc, "Enforcing", metav1.ConditionTrue, "Enforcing", "")
	if err := inprocess.CreateCRDs(t, o.config); err != nil {
		t.Fatal(err)
	}
	o.waitForCondition(o.apply(archivesConfigMaps), "Archiving", metav1.ConditionFalse, "NoStore", "")
}
