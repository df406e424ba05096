package policies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"filippo.io/age"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/crds"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/filestore"
	"github.com/gleaner-dev/gleaner/operator/run"
	"github.com/gleaner-dev/gleaner/test/inprocess"
)

// folderArchive is an archive in a folder, which can be made to fail.
type folderArchive struct {
	archive.Store
	dir      string
	identity *age.X25519Identity // of the recipient

	mu    sync.Mutex // covers fails
	fails error
}

// newFolderArchive has a collector that is started with it store what it archives in a folder.
func newFolderArchive(t *testing.T) *folderArchive {
	t.Helper()
	identity, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	return &folderArchive{dir: t.TempDir(), identity: identity}
}

// Put implements archive.Store.
func (a *folderArchive) Put(ctx context.Context, entries ...archive.Entry) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fails != nil {
		return a.fails
	}
	return a.Store.Put(ctx, entries...)
}

func (a *folderArchive) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fails = err
}

// has reports whether an object was archived, with all its data, as it was when it was being
// deleted.
func (a *folderArchive) has(t *testing.T, o *unstructured.Unstructured) bool {
	t.Helper()
	found := false
	err := a.Headers(t.Context(), archive.Query{UID: o.GetUID()}, func(h archive.Header) bool {
		body, err := a.Body(t.Context(), h)
		if err != nil {
			t.Fatal(err)
		}
		archived, err := archive.Open(h, body, a.identity)
		if err != nil {
			t.Fatal(err)
		}
		data, _, _ := unstructured.NestedFieldNoCopy(archived.Object, "data")
		wanted, _, _ := unstructured.NestedFieldNoCopy(o.Object, "data")
		found = fmt.Sprint(data) == fmt.Sprint(wanted) && archived.GetDeletionTimestamp() != nil
		return !found
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// use has a collector open the archive, which closes it.
func (a *folderArchive) use(t *testing.T) func(*run.Options) {
	return func(o *run.Options) {
		store, err := filestore.Open(a.dir, filestore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		a.Store = store
		o.Archive = &run.Archive{Opened: a}
	}
}

func (o *dedicatedEnv) expectArchived(a *folderArchive, objects ...*unstructured.Unstructured) {
	o.Helper()
	o.waitForDeletion(objects...)
	for _, object := range objects {
		if !a.has(o.T, object) {
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
	o := newOperatorEnv(t)
	const entry = "archive.cluster.gleaner.dev/data"
	existing, other := o.createObject("ConfigMap", "existing", data), o.createObject("ConfigMap", "other", nil)
	p := o.apply(archivesConfigMaps)
	o.waitForCondition(p, "Archiving", metav1.ConditionFalse, "NoStore", "start it with --archive")
	o.waitForCondition(p, "Accepted", metav1.ConditionTrue, "Accepted", "pods get no finalizer")
	if found := o.get(existing).GetFinalizers(); len(found) != 0 {
		t.Errorf("without an archive, it has %v", found)
	}

	o.stopOperator()
	a := newFolderArchive(t)
	o.startOperatorWith(a.use(t))
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
	if a.has(t, other) {
		t.Error("an object was archived that the policy does not select")
	}
	o.waitForStatus(p, "archived", 2)

	o.expectModuleDeletesArchived(a)
	o.expectRetentionArchives(a)
	last := o.createObject("ConfigMap", "last", data)
	o.waitForFinalizers(last, entry)
	o.delete(p)
	o.waitForDeletion(p)
	o.waitForFinalizers(last)
}

// expectRetentionArchives has a retention policy remove a Pod.
func (o *dedicatedEnv) expectRetentionArchives(a *folderArchive) {
	o.Helper()
	pod := o.createPod("temporary", map[string]any{"labels": map[string]any{"tier": "data", "temporary": "yes"}}, nil)
	o.retention("temporary", "Enforce", "/pods", "objectSelector: {matchLabels: {temporary: \"yes\"}}\nmaxAge: 1s")
	o.waitForDeletion(pod)
	var causes []string
	if err := a.Headers(o.Context(), archive.Query{UID: pod.GetUID()}, func(h archive.Header) bool {
		causes = append(causes, h.Cause.Reason+" "+h.Cause.Policy)
		return true
	}); err != nil {
		o.Fatal(err)
	}
	if want := []string{"RemovedByRetention RetentionPolicy " + o.ns + "/temporary"}; !slices.Equal(causes, want) {
		o.Errorf("archived for %q; want %q", causes, want)
	}
}

// expectModuleDeletesArchived has a finalizer's module delete a Pod, which has no finalizer of its own that archives it.
func (o *dedicatedEnv) expectModuleDeletesArchived(a *folderArchive) {
	o.Helper()
	pod := o.createPod("pod", map[string]any{"labels": map[string]any{"tier": "data"}}, nil)
	o.createWriter("pods", "delete")
	o.applyFinalizer("purge", `
finalize := {"decision": "Done"} if input.results.pod
else := {"decision": "Act", "intents": [{"id": "pod", "delete": {"apiVersion": "v1", "kind": "Pod", "namespace": input.object.metadata.namespace, "name": "pod", "uid": input.policy.settings.uid}}]}`,
		`serviceAccount: {name: writer}
grants: {write: [{apiGroups: [""], resources: [pods], verbs: [delete]}]}
settings: {uid: `+string(pod.GetUID())+`}`)
	purged := o.createWithFinalizers("purged", o.finalizerName("purge"))
	o.delete(purged)
	o.waitForDeletion(pod, purged)
	archived := 0
	if err := a.Headers(o.Context(), archive.Query{UID: pod.GetUID()}, func(archive.Header) bool { archived++; return true }); err != nil {
		o.Fatal(err)
	}
	if archived != 1 {
		o.Errorf("a Pod that a module has deleted was archived %d times", archived)
	}
}

// The namespace controller deletes the policy and the objects in any order.
func TestArchivePolicy_ArchivesANamespaceThatIsDeleted(t *testing.T) {
	o := newOperatorEnv(t)
	o.stopOperator()
	a := newFolderArchive(t)
	o.startOperatorWith(a.use(t))
	o.apply("{kind: Namespace, metadata: {name: NS-ending}}")
	p := o.apply(`
kind: ArchivePolicy
metadata: {name: own, namespace: NS-ending}
spec:
  resources: [{apiGroups: [""], resources: [configmaps, secrets]}]
  recipients: [` + a.identity.Recipient().String() + `]`)
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
