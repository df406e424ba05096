package deploy

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster"
)

// kubectl runs kubectl, and checks that it prints no warnings.
func kubectl(t *testing.T, cluster *devcluster.Cluster, args ...string) string {
	t.Helper()
	binaries, err := devcluster.Build(t.Context(), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), binaries.Kubectl, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+cluster.Kubeconfig(), "KUBECACHEDIR="+cluster.KubectlCache())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		t.Fatalf("kubectl %s: %v: %s", strings.Join(args, " "), err, &stderr)
	}
	if hasWarning(stderr.String()) {
		t.Errorf("kubectl %s: %s", strings.Join(args, " "), &stderr)
	}
	return stdout.String()
}

// hasWarning reports whether the errors that kubectl has printed contain a warning. What its own watch
// reports when "kubectl wait" ends it is none: it depends on whether an event arrives at that moment.
func hasWarning(stderr string) bool {
	for line := range strings.Lines(strings.ToLower(stderr)) {
		endOfWatch := strings.Contains(line, "watch ended with error") && strings.Contains(line, "context canceled")
		if strings.Contains(line, "warning") && !endOfWatch {
			return true
		}
	}
	return false
}

func TestKubectl_WarningsAreFoundAmongTheLinesOfItsOwnWatch(t *testing.T) {
	const end = `I1124 15:19:27.503354 13876 reflector.go:664] "Warning: watch ended with error" err="an error on the server (\"unable to decode an event from the watch stream: context canceled\")"`
	for stderr, want := range map[string]bool{
		"": false, end: false, "some note\n" + end + "\n": false,
		"Warning: unknown field \"spec.x\"\n": true, end + "\nWarning: deprecated": true,
		strings.ReplaceAll(end, "context canceled", "connection refused"): true,
	} {
		if got := hasWarning(stderr); got != want {
			t.Errorf("%q: got %t", stderr, got)
		}
	}
}

// waitForControllers waits until controllers have processed new objects.
func waitForControllers(t *testing.T, cluster *devcluster.Cluster) {
	t.Helper()
	for resource, condition := range map[string]string{
		"customresourcedefinitions": "condition=Established",
		"deployments/gleaner":       `jsonpath={.metadata.annotations.deployment\.kubernetes\.io/revision}=1`,
	} {
		args := []string{"wait", "-n", namespace, "--for", condition, "--timeout", timeout.String(), resource}
		if !strings.Contains(resource, "/") {
			args = append(args, "--all")
		}
		kubectl(t, cluster, args...)
	}
}

// wantedObjects returns the applied objects, without fields that controllers write.
func wantedObjects(t *testing.T, cluster *devcluster.Cluster, overlay string) map[string]any {
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

// listAllObjects returns the names of all objects, except those that the control
// plane creates in its own namespaces after its start.
func listAllObjects(t *testing.T, cluster *devcluster.Cluster) ([]string, error) {
	t.Helper()
	config := cluster.RESTConfig()
	config.WarningHandler = rest.NoWarnings{} // about deprecated types
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
				if !isControlPlaneObject(r.Name, o.GetNamespace()) {
					names = append(names, r.Name+" "+o.GetNamespace()+"/"+o.GetName())
				}
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

func isControlPlaneObject(resource, namespace string) bool {
	return resource == "clustertrustbundles" || (namespace == "default" || strings.HasPrefix(namespace, "kube-")) &&
		slices.Contains([]string{"configmaps", "leases", "serviceaccounts"}, resource)
}
