package process

import (
	"errors"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// If Gleaner is removed in the wrong order, the deletion of its CustomResourceDefinitions waits for
// objects whose finalizers are no longer served.
func TestRelease_UnblocksTheDeletionOfAType(t *testing.T) {
	cluster := newClusterWithCRDs(t)
	createInUse(t, cluster, "ClusterFinalizer", "clusterfinalizers", "", map[string]any{"finalizer": bucket})
	const name = "clusterfinalizers.gleaner.dev"
	types := apiextensions.NewForConfigOrDie(cluster.RESTConfig()).ApiextensionsV1().CustomResourceDefinitions()
	if err := types.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, timeout, func() error { // the API server then deletes the objects
		d, err := types.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range d.Status.Conditions {
			if c.Type == apiextensionsv1.Terminating && c.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return errors.New("objects are not being deleted yet")
	})
	devtest.Eventually(t, timeout, func() error {
		list, err := apiextensions.NewForConfigOrDie(cluster.RESTConfig()).Discovery().ServerResourcesForGroupVersion("gleaner.dev/v1alpha1")
		if err != nil {
			return err
		}
		for _, r := range list.APIResources {
			for _, verb := range r.Verbs {
				if r.Name == "clusterfinalizers" && verb == "patch" {
					return errors.New("discovery still lists the verb patch")
				}
			}
		}
		return nil
	})
	out, err := releaseOn(t, cluster, "", "--all", "--yes")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	expectContains(t, out, "Released 1 object (")
	devtest.Eventually(t, timeout, func() error {
		_, err := types.Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("definition still exists"))
	})
}
