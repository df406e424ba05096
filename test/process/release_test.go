package process

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

const hold = "gleaner.dev/hold"

// releaseWith runs gleaner release without an operator, and returns its output.
func releaseWith(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	return releaseOn(t, devtest.Shared(t), input, args...)
}

func releaseOn(t *testing.T, cluster *devcluster.Cluster, input string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), gleaner.Path(t), append([]string{"release", "--kubeconfig", cluster.Kubeconfig()}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	return out.String(), err
}

func TestRelease_Holds_WithoutTheOperator(t *testing.T) {
	config := devtest.Shared(t).RESTConfig()
	client := kubernetes.NewForConfigOrDie(config)
	ns := devtest.Namespace(t, config)
	maps := client.CoreV1().ConfigMaps(ns)
	t.Cleanup(func() { // they would block the deletion of the namespace
		for _, name := range []string{"a", "b", "c"} {
			_, _ = maps.Patch(context.WithoutCancel(t.Context()), name, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
		}
	})
	finalizers := func(name string) []string {
		o, err := maps.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return o.Finalizers
	}
	for name, list := range map[string][]string{"a": {hold}, "b": {"example.com/other", hold}, "c": {hold}} {
		o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: list}}
		if _, err := maps.Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if err := maps.Delete(t.Context(), "c", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}

	out, err := releaseWith(t, "n\n", "--all", "-n", ns)
	if err != nil || !strings.Contains(out, "Release 3 objects? [y/N]") || !strings.Contains(out, "Nothing was released.") || len(finalizers("a")) != 1 {
		t.Fatalf("answered no: %v\n%s", err, out)
	}
	if !strings.Contains(out, "configmaps/c") || !strings.Contains(out, "terminating") {
		t.Errorf("list is:\n%s", out)
	}

	out, err = releaseWith(t, "y\n", "configmaps/a", "-n", ns)
	if err != nil || !strings.Contains(out, "Released 1 object (configmaps: 1): removed "+hold+" from 1.") || len(finalizers("a")) != 0 || len(finalizers("b")) != 2 {
		t.Fatalf("one object: %v\n%s", err, out)
	}

	out, err = releaseWith(t, "", "--all", "--yes", "-n", ns)
	if err != nil || !strings.Contains(out, "Released 2 objects (configmaps: 2): removed "+hold+" from 2.") {
		t.Fatalf("all: %v\n%s", err, out)
	}
	if left := finalizers("b"); len(left) != 1 || left[0] != "example.com/other" {
		t.Errorf("left on b: %v", left)
	}
	if _, err := maps.Get(t.Context(), "c", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("c: %v", err)
	}
	if out, err = releaseWith(t, "", "--all", "-n", ns); err != nil || !strings.Contains(out, "No object has a hold.") {
		t.Errorf("with no objects left: %v\n%s", err, out)
	}
}

func TestRelease_InvalidArguments_AreExplained(t *testing.T) {
	for want, args := range map[string][]string{
		"specify exactly one of KIND/NAME": {},
		"--policy and --all":               {"configmaps/a", "--all"},
		"write KIND/NAME":                  {"configmaps"},
		"expected one object, got":         {"configmaps/a", "configmaps/b"},
		"use one of them":                  {"configmaps/a", "-n", "default", "-A"},

		"specify exactly one of KIND/NAME, ": {"--finalizer", "example.com/bucket"},
		"or omit --finalizer":                {"--finalizer", "example.com/bucket", "--policy", "p"},
		"write it as in metadata.finalizers": {"--finalizer", "a/b/c", "--all"},
		"omit --finalizer, or write":         {"finalizer/a", "--finalizer", "example.com/bucket"},
		"a Finalizer is namespaced":          {"finalizers.gleaner.dev/a", "-A"},
		"--live requires --finalizer":        {"--all", "--live"},

		"omit --finalizer\n":                  {"--all", "--finalizer", "gleaner.dev/hold"},
		"the garbage collector orphans":       {"--all", "--finalizer", "orphan"},
		"the object waits for its dependents": {"--all", "--finalizer", "foregroundDeletion"},
		"a namespace has it in its spec":      {"--all", "--finalizer", "kubernetes"},
		"delete the pod":                      {"--all", "--finalizer", "kubernetes.io/pvc-protection"},
		"delete the claim":                    {"--all", "--finalizer", "kubernetes.io/pv-protection"},
		"it belongs to Kubernetes":            {"--all", "--finalizer", "service.kubernetes.io/load-balancer-cleanup"},
	} {
		if out, err := releaseWith(t, "", args...); exitCode(err) != 2 || !strings.Contains(out, want) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

func TestRelease_MissingObjects_AreReported(t *testing.T) {
	for want, args := range map[string][]string{
		"write NAMESPACE/NAME for a GCPolicy":                                 {"--policy", "missing"},
		"read the ClusterFinalizer":                                           {"clusterfinalizer", "missing"},
		"omit --live":                                                         {"--all", "--live", "--finalizer", "example.com/bucket"},
		`doesn't have a resource type "nonesuch"`:                             {"nonesuch/a"},
		`Error from server (NotFound): configmaps "missing" not found`:        {"cm/missing"},
		"in namespace default: set another with -n, or search all with -A":    {"cm", "missing"},
		`Error from server (NotFound): namespaces "missing" not found` + "\n": {"ns/missing"},
	} {
		if out, err := releaseWith(t, "", args...); exitCode(err) != 1 || !strings.Contains(out, want) {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// exitCode returns a process's exit code; -1 if it was killed.
func exitCode(err error) int {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.ExitCode()
	default:
		return -1
	}
}

func TestRelease_AcceptsNamesAsKubectlDoes(t *testing.T) {
	c := newFinalizerObjects(t, devtest.Shared(t))
	config := inNamespace(t, devtest.Shared(t), c.ns)
	unique := "only-" + c.ns
	for _, words := range [][]string{
		{"configmaps/NAME", "-n", c.ns},
		{"cm", "NAME", "-n", c.ns},
		{"ConfigMap/NAME", "--namespace", c.ns},
		{"cm/NAME", "-A"},
		{"cm/NAME", "--context", "there", "--kubeconfig", config},
	} {
		c.create(unique, false, nil, hold)
		args := strings.Split(strings.ReplaceAll(strings.Join(words, "\n"), "NAME", unique), "\n")
		out, err := releaseWith(t, "", append(args, "--yes")...)
		if err != nil || !strings.Contains(out, "Released 1 object (configmaps: 1)") {
			t.Errorf("%v: %v\n%s", words, err, out)
		}
		c.expect(strings.Join(words, " "), map[string][]string{unique: {}})
		if err := c.maps.Delete(t.Context(), unique, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestRelease_Completion(t *testing.T) {
	c := newFinalizerObjects(t, devtest.Shared(t))
	c.create("settings", false, nil)
	for begun, want := range map[string]string{"cm/se": "cm/settings\n", "configmap": "configmaps\n"} {
		cmd := exec.CommandContext(t.Context(), gleaner.Path(t), "__complete", "release", "--kubeconfig", devtest.Shared(t).Kubeconfig(), "-n", c.ns, begun)
		if out, err := cmd.Output(); err != nil || !strings.HasPrefix(string(out), want) {
			t.Errorf("%s: %v\n%s", begun, err, out)
		}
	}
}

// inNamespace writes a kubeconfig whose current context has a namespace.
func inNamespace(t *testing.T, cluster *devcluster.Cluster, namespace string) string {
	t.Helper()
	config, err := clientcmd.LoadFromFile(cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	there := *config.Contexts[config.CurrentContext]
	there.Namespace = namespace
	config.Contexts["there"] = &there
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	return path
}
