package deploy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

func TestWhatIsApplied(t *testing.T) {
	for claim, flags := range map[string][]string{
		"by kubectl":        nil,
		"by the API server": {"--server-side"},
	} {
		t.Run(claim, func(t *testing.T) {
			cluster := bare(t)
			before, err := everything(t, cluster)
			if err != nil {
				t.Fatal(err)
			}

			kubectl(t, cluster, append([]string{"apply", "-k", overlay}, flags...)...)
			settled(t, cluster)
			first := wanted(t, cluster)

			out := kubectl(t, cluster, append([]string{"apply", "-k", overlay}, flags...)...)
			t.Run("is the same when it is applied again", func(t *testing.T) {
				if diff := cmp.Diff(first, wanted(t, cluster)); diff != "" {
					t.Errorf("after the first and the second time:\n%s", diff)
				}
				for line := range strings.Lines(out) {
					// kubectl sends the selector of a budget each time.
					if flags == nil && !strings.HasSuffix(line, " unchanged\n") && !strings.HasPrefix(line, "poddisruptionbudget") {
						t.Errorf("kubectl says %s", line)
					}
				}
			})

			t.Run("goes without a trace when it is deleted", func(t *testing.T) {
				// With the namespace, which is among it, goes what is in it.
				kubectl(t, cluster, "delete", "-k", overlay, "--ignore-not-found")
				devtest.Eventually(t, patience, func() error {
					after, err := everything(t, cluster)
					if diff := cmp.Diff(before, after); err == nil && diff != "" {
						err = fmt.Errorf("before it was applied and after it was deleted:\n%s", diff)
					}
					return err
				})
			})
		})
	}
}

func kubectl(t *testing.T, cluster *devcluster.Cluster, args ...string) string {
	t.Helper()
	out, err := cluster.Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// settled waits until controllers have done what they do to new objects.
func settled(t *testing.T, cluster *devcluster.Cluster) {
	t.Helper()
	for resource, condition := range map[string]string{
		"customresourcedefinitions": "condition=Established",
		"deployments/gleaner":       `jsonpath={.metadata.annotations.deployment\.kubernetes\.io/revision}=1`,
	} {
		args := []string{"wait", "-n", namespace, "--for", condition, "--timeout", patience.String(), resource}
		if !strings.Contains(resource, "/") {
			args = append(args, "--all")
		}
		kubectl(t, cluster, args...)
	}
}

// wanted returns the objects that are applied, without what controllers write.
func wanted(t *testing.T, cluster *devcluster.Cluster) map[string]any {
	t.Helper()
	var list unstructured.UnstructuredList
	if err := list.UnmarshalJSON([]byte(kubectl(t, cluster, "get", "-k", overlay, "-o", "json"))); err != nil {
		t.Fatal(err)
	}
	objects := map[string]any{}
	for _, o := range list.Items {
		delete(o.Object, "status")
		o.SetResourceVersion("")
		o.SetManagedFields(nil)
		objects[o.GetKind()+" "+o.GetName()] = o.Object
	}
	return objects
}

// everything returns the names of all objects, but for those that the control
// plane makes in its own namespaces after its start.
func everything(t *testing.T, cluster *devcluster.Cluster) ([]string, error) {
	t.Helper()
	config := cluster.RESTConfig()
	config.WarningHandler = rest.NoWarnings{} // about types that are deprecated
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	client := dynamic.NewForConfigOrDie(config)
	var names []string
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			if !slices.Contains(r.Verbs, "list") || r.Name == "events" {
				continue
			}
			found, err := client.Resource(version.WithResource(r.Name)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", r.Name, err)
			}
			for _, o := range found.Items {
				if !isControlPlanes(r.Name, o.GetNamespace()) {
					names = append(names, r.Name+" "+o.GetNamespace()+"/"+o.GetName())
				}
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

func isControlPlanes(resource, namespace string) bool {
	return (namespace == "default" || strings.HasPrefix(namespace, "kube-")) &&
		slices.Contains([]string{"configmaps", "leases", "serviceaccounts"}, resource)
}
