package process

import (
	"context"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/gleaner-dev/gleaner/crds"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

const bucket = "example.com/bucket"

// finalizerObjects are ConfigMaps with finalizers in a namespace of one test.
type finalizerObjects struct {
	*testing.T
	ns   string
	maps typedcorev1.ConfigMapInterface
}

func newFinalizerObjects(t *testing.T, cluster *devcluster.Cluster) *finalizerObjects {
	t.Helper()
	ns := devtest.Namespace(t, cluster.RESTConfig())
	c := &finalizerObjects{t, ns, kubernetes.NewForConfigOrDie(cluster.RESTConfig()).CoreV1().ConfigMaps(ns)}
	t.Cleanup(func() { // they would block the deletion of the namespace
		ctx := context.WithoutCancel(t.Context())
		list, err := c.maps.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Error(err)
			return
		}
		for _, o := range list.Items {
			_, err := c.maps.Patch(ctx, o.Name, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				t.Error(err)
			}
		}
	})
	return c
}

// create creates an object, and deletes it if deleted is true.
func (c *finalizerObjects) create(name string, deleted bool, annotations map[string]string, finalizers ...string) {
	c.Helper()
	o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: finalizers, Annotations: annotations}}
	if _, err := c.maps.Create(c.Context(), o, metav1.CreateOptions{}); err != nil {
		c.Fatal(err)
	}
	if !deleted {
		return
	}
	if err := c.maps.Delete(c.Context(), name, metav1.DeleteOptions{}); err != nil {
		c.Fatal(err)
	}
}

// remaining returns the finalizers and annotations of the existing objects.
func (c *finalizerObjects) remaining() map[string][]string {
	c.Helper()
	list, err := c.maps.List(c.Context(), metav1.ListOptions{})
	if err != nil {
		c.Fatal(err)
	}
	found := map[string][]string{}
	for _, o := range list.Items {
		if o.Name == "kube-root-ca.crt" {
			continue
		}
		words := append([]string{}, o.Finalizers...)
		for _, name := range slices.Sorted(maps.Keys(o.Annotations)) {
			words = append(words, name+": "+o.Annotations[name])
		}
		found[o.Name] = words
	}
	return found
}

func (c *finalizerObjects) expect(when string, want map[string][]string) {
	c.Helper()
	if diff := cmp.Diff(want, c.remaining()); diff != "" {
		c.Errorf("%s (-want +got):\n%s", when, diff)
	}
}

func expectContains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("output lacks %q:\n%s", part, text)
		}
	}
}

func TestRelease_ForeignFinalizer_OnlyOfTerminatingObjects(t *testing.T) {
	const note = "gleaner.dev/finalizers"
	c := newFinalizerObjects(t, devtest.Shared(t))
	c.create("goes", true, nil, bucket)
	c.create("remembered", true, map[string]string{note: `{"uid":"1","by":{"example.com/bucket":{"attempt":2}}}`}, bucket, "example.com/other")
	c.create("waits", true, map[string]string{note: `{"uid":"2","by":{"example.com/bucket":{},"example.com/other":{"attempt":1}}}`}, bucket, "example.com/other")
	c.create("stays", false, nil, bucket)
	before := c.remaining()

	out, err := releaseWith(t, "n\n", "--finalizer", bucket, "--all", "-n", c.ns)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	expectContains(t, out, "configmaps/goes", "configmaps/waits", "Skipping 1 object with finalizer example.com/bucket: not being deleted.",
		"belongs to another controller", "The cleanup of this finalizer is skipped", "Remove example.com/bucket from 3 objects? [y/N]", "Nothing was released.")
	if strings.Contains(out, "configmaps/stays") {
		t.Errorf("it would be removed from an object that is not being deleted:\n%s", out)
	}
	c.expect("after no", before)

	out, err = releaseWith(t, "y\n", "configmaps/stays", "--finalizer", bucket, "-n", c.ns)
	if err == nil || !strings.Contains(out, "stays is not being deleted, or does not have example.com/bucket") {
		t.Errorf("object that is not being deleted: %v\n%s", err, out)
	}
	c.expect("after an object that is not being deleted", before)

	if out, err = releaseWith(t, "y\n", "configmaps/goes", "--finalizer", bucket, "-n", c.ns); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	delete(before, "goes")
	c.expect("after one object", before)

	if out, err = releaseWith(t, "", "--all", "--finalizer", bucket, "-n", c.ns, "--yes"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	expectContains(t, out, "Released 2 objects (configmaps: 2): removed "+bucket+" from 2.")
	c.expect("after all", map[string][]string{
		"remembered": {"example.com/other"},
		"waits":      {"example.com/other", note + `: {"uid":"2","by":{"example.com/other":{"attempt":1}}}`},
		"stays":      {bucket},
	})

	if out, err = releaseWith(t, "", "--all", "--finalizer", bucket, "-n", c.ns); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	expectContains(t, out, "No object with finalizer example.com/bucket is being deleted.")
}

func TestRelease_AmbiguousName_IsRefused(t *testing.T) {
	c, other := newFinalizerObjects(t, devtest.Shared(t)), newFinalizerObjects(t, devtest.Shared(t))
	name := "same-" + c.ns
	c.create(name, true, nil, bucket, hold)
	other.create(name, true, nil, bucket, hold)
	for _, more := range [][]string{nil, {"--finalizer", bucket}} {
		out, err := releaseWith(t, "", append([]string{"configmaps/" + name, "-A", "--yes"}, more...)...)
		if err == nil || !strings.Contains(out, "select one with -n") {
			t.Errorf("%v: %v\n%s", more, err, out)
		}
	}
	want := map[string][]string{name: {bucket, hold}}
	c.expect("in one namespace", want)
	other.expect("in the other", want)
}

// newClusterWithCRDs starts a control plane with Gleaner's custom resources.
func newClusterWithCRDs(t *testing.T) *devcluster.Cluster {
	t.Helper()
	cluster := newCluster(t)
	definitions, err := crds.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	types := apiextensions.NewForConfigOrDie(cluster.RESTConfig()).ApiextensionsV1().CustomResourceDefinitions()
	for _, d := range definitions {
		if _, err := types.Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	return cluster
}

// createInUse creates a finalizer resource, which stays when it is deleted.
func createInUse(t *testing.T, cluster *devcluster.Cluster, kind, resource, ns string, spec map[string]any) dynamic.ResourceInterface {
	t.Helper()
	client := dynamic.NewForConfigOrDie(cluster.RESTConfig()).Resource(v1alpha1.GroupVersion.WithResource(resource)).Namespace(ns)
	spec["module"] = map[string]any{"name": "m"}
	spec["resources"] = []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}}}
	o := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	o.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(kind))
	o.SetName("remove")
	o.SetFinalizers([]string{"gleaner.dev/in-use"})
	devtest.Eventually(t, timeout, func() error { // the type is served a moment after its definition
		_, err := client.Create(t.Context(), o, metav1.CreateOptions{})
		return err
	})
	return client
}

func exists(t *testing.T, client dynamic.ResourceInterface) bool {
	t.Helper()
	_, err := client.Get(t.Context(), "remove", metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
	return err == nil
}

func TestRelease_GleanersFinalizer(t *testing.T) {
	cluster := newClusterWithCRDs(t)
	t.Run("with its resource", func(t *testing.T) { releaseFinalizerResource(t, cluster) })
	t.Run("by its own name, and by that of the resource", func(t *testing.T) { releaseClusterFinalizer(t, cluster) })
}

func releaseFinalizerResource(t *testing.T, cluster *devcluster.Cluster) {
	t.Helper()
	c := newFinalizerObjects(t, cluster)
	own := c.ns + ".gleaner.dev/remove"
	resource := createInUse(t, cluster, "Finalizer", "finalizers", c.ns, map[string]any{})
	c.create("goes", true, nil, own)
	c.create("stays", false, map[string]string{"a": "b"}, own)
	release := func(args ...string) string {
		t.Helper()
		out, err := releaseOn(t, cluster, "", append(args, "--yes")...)
		if err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
		return out
	}

	expectContains(t, release("finalizer/remove", "-n", c.ns), "belongs to Finalizer "+c.ns+"/remove", "Skipping 1 object with finalizer "+own+": not being deleted", "Released 1 object (configmaps: 1): removed "+own+" from 1.")
	c.expect("objects that are being deleted", map[string][]string{"stays": {own, "a: b"}})

	if err := resource.Delete(t.Context(), "remove", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	expectContains(t, release("finalizer/remove", "-n", c.ns), "Finalizer "+c.ns+"/remove is not released")
	if !exists(t, resource) {
		t.Fatal("resource was deleted before its objects")
	}

	expectContains(t, release("finalizers.gleaner.dev/remove", "-n", c.ns, "--live"), "1 of these objects are not being deleted", "finalizers.gleaner.dev/remove",
		"Released 2 objects (configmaps: 1, finalizers.gleaner.dev: 1): removed ")
	c.expect("others", map[string][]string{"stays": {"a: b"}})
	if exists(t, resource) {
		t.Error("resource still exists")
	}
}

func releaseClusterFinalizer(t *testing.T, cluster *devcluster.Cluster) {
	t.Helper()
	c := newFinalizerObjects(t, cluster)
	resource := createInUse(t, cluster, "ClusterFinalizer", "clusterfinalizers", "", map[string]any{"finalizer": bucket})
	c.create("goes", true, nil, bucket)
	c.create("stays", false, nil, bucket)

	out, err := releaseOn(t, cluster, "", "clusterfinalizer/remove", "--yes")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	c.expect("objects that are being deleted", map[string][]string{"stays": {bucket}})

	out, err = releaseOn(t, cluster, "", "--all", "--finalizer", bucket, "--live", "--yes")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	expectContains(t, out, "example.com/bucket belongs to ClusterFinalizer remove.", "Released 1 object (configmaps: 1): removed "+bucket+" from 1.")
	c.expect("others", map[string][]string{"stays": {}})

	if err := resource.Delete(t.Context(), "remove", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	out, err = releaseOn(t, cluster, "", "--all", "--yes")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	expectContains(t, out, "clusterfinalizers.gleaner.dev/remove", "its finalizer is no longer handled",
		"Released 1 object (clusterfinalizers.gleaner.dev: 1): removed gleaner.dev/in-use from 1.")
	if exists(t, resource) {
		t.Error("resource still exists")
	}
}
