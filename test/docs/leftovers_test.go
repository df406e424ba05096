package docs

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// expectCleanedUp waits until nothing is left that a document has created: it is asked often, and kubectl would take longer for that
// than many documents.
func expectCleanedUp(t *testing.T) {
	t.Helper()
	config, err := sharedDev.config()
	if err != nil {
		t.Fatal(err)
	}
	types, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		t.Fatal(err)
	}
	client := metadata.NewForConfigOrDie(config)
	devtest.Eventually(t, timeout, func() error {
		left, err := leftovers(t.Context(), client, types)
		if err == nil && len(left) != 0 {
			err = fmt.Errorf("not cleaned up: %q", left)
		}
		return err
	})
}

// leftovers returns the names of the objects that a document has left behind: Gleaner's, those of the namespace default, and namespaces.
func leftovers(ctx context.Context, client metadata.Interface, types []*metav1.APIResourceList) (left []string, err error) {
	for _, list := range types {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			namespace := ""
			switch {
			case slices.Contains(r.Categories, "gleaner"), r.Name == "namespaces" && version.Group == "":
			case slices.Contains(r.Categories, "all"), slices.Contains(alsoInDefault, r.Name):
				namespace = metav1.NamespaceDefault
			default:
				continue
			}
			found, err := client.Resource(version.WithResource(r.Name)).Namespace(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", r.Name, err)
			}
			for _, o := range found.Items {
				if name := strings.ToLower(r.Kind) + "/" + o.Name; !slices.Contains(defaultObjects, name) && !strings.HasPrefix(name, "namespace/kube-") {
					left = append(left, name)
				}
			}
		}
	}
	return left, nil
}

// alsoInDefault are the resources that documents create in the namespace default, besides those of the category all.
var alsoInDefault = []string{"configmaps", "persistentvolumeclaims", "rolebindings", "serviceaccounts"}

// defaultObjects are the objects that always exist.
var defaultObjects = []string{"service/kubernetes", "configmap/kube-root-ca.crt", "serviceaccount/default", "namespace/default"}
