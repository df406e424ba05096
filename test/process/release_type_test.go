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

// Whoever removes Gleaner in the wrong order deletes its types first, which wait then for
// objects that nobody serves any more.
func TestWhatTheDeletionOfATypeWaitsForIsReleased(t *testing.T) {
	cluster := withFinalizers(t)
	inUse(t, cluster, "ClusterFinalizer", "clusterfinalizers", "", map[string]any{"finalizer": bucket})
	const name = "clusterfinalizers.gleaner.dev"
	types := apiextensions.NewForConfigOrDie(cluster.RESTConfig()).ApiextensionsV1().CustomResourceDefinitions()
	if err := types.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	devtest.Eventually(t, patience, func() error { // the API server deletes the objects then, and discovery says so
		d, err := types.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, c := range d.Status.Conditions {
			if c.Type == apiextensionsv1.Terminating && c.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return errors.New("nobody has begun to delete its objects")
	})
	devtest.Eventually(t, patience, func() error {
		list, err := apiextensions.NewForConfigOrDie(cluster.RESTConfig()).Discovery().ServerResourcesForGroupVersion("gleaner.dev/v1alpha1")
		if err != nil {
			return err
		}
		for _, r := range list.APIResources {
			for _, verb := range r.Verbs {
				if r.Name == "clusterfinalizers" && verb == "patch" {
					return errors.New("discovery does not tell yet")
				}
			}
		}
		return nil
	})
	out, err := releaseOn(t, cluster, "", "--all", "--yes")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	contains(t, out, "Released 1 object (")
	devtest.Eventually(t, patience, func() error {
		_, err := types.Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	})
}
