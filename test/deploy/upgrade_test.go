package deploy

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

var release = flag.Bool("release", false, "write "+released+" from the current default overlay, as for a release")

// released is the companion overlay of an earlier version, without descriptions. It is
// a file because a checkout may lack the history.
const released = "testdata/released.yaml"

// upgradeResources are the resources that users have before an upgrade, with fields of all kinds.
const upgradeResources = `
apiVersion: gleaner.dev/v1alpha1
kind: ClusterGCPolicy
metadata: {name: holds}
spec:
  resources: [{apiGroups: [""], resources: [configmaps]}]
  namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: NAMESPACE}}
  objectSelector: {matchExpressions: [{key: free, operator: DoesNotExist}]}
  matchConditions: [{name: any, expression: "object.metadata.name != 'other'"}]
  fixed:
    propagate: {decision: Foreground, dependents: [{kind: ConfigMap, decision: Orphan}], reason: kept by hand}
    collect: {decision: Delete, delay: 720h}
  explicitPropagation: Override
  priority: 7
  overridable: true
  mode: Enforce
---
apiVersion: gleaner.dev/v1alpha1
kind: PolicyModule
metadata: {name: m, namespace: NAMESPACE}
spec:
  rego: {inline: "package gleaner\n\nfinalize := {\"decision\": \"Wait\", \"after\": \"1h\"}\n"}
  limits: {fuel: 1000000, timeout: 1s, memory: 32Mi}
---
apiVersion: gleaner.dev/v1alpha1
kind: Finalizer
metadata: {name: f, namespace: NAMESPACE}
spec:
  resources: [{apiGroups: [""], resources: [secrets]}]
  module: {name: m}
  settings: {some: {thing: [1, two, true]}}
  serviceAccount: {name: default}
  grants:
    read: [{apiGroups: [""], resources: [secrets]}]
    http: [{url: "https://example.com/*", methods: [GET]}]
  deadline: 1h
  onRemoval: Release
  retry: {initial: 2s, max: 1m}
  mode: Enforce
---`

// upgradeEnv is a cluster on which an earlier version is upgraded, and removed.
type upgradeEnv struct {
	*env
	cluster *devcluster.Cluster
}

// To replace the operator, it is stopped and started; both are the current version, since
// the test is about the effect of the manifests on existing objects.
func TestUpgradeAndRemoval(t *testing.T) {
	cluster := startBareCluster(t)
	if *release {
		writeReleased(t, cluster)
	}
	// The API server creates this Service some time after it is ready.
	kubectl(t, cluster, "wait", "--for=create", "--timeout="+timeout.String(), "-n", "default", "services/kubernetes")
	before, err := listAllObjects(t, cluster)
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, cluster, "apply", "-f", released)
	waitForControllers(t, cluster)
	u := &upgradeEnv{newEnv(t, cluster.RESTConfig()), cluster}
	var old map[string]any
	step := func(claim string, do func(t *testing.T)) {
		if !t.Run(claim, do) {
			t.FailNow() // each step continues the previous one
		}
	}
	step("before the upgrade", func(t *testing.T) {
		o := startOperator(t, cluster)
		o.waitUntilReady("/readyz")
		u.forSubtest(t).applyUnpinned(cluster, upgradeResources, "-n", u.ns, "clustergcpolicies/holds")
		u.forSubtest(t).createHeld("owner")
		u.create("dependent", u.ns, u.get("owner"))
		u.forSubtest(t).createDelayed("delayed")
		o.stop()
		old = u.specs()
	})
	step("an upgrade loses no field, no hold, and no state", func(t *testing.T) {
		memo := u.get("delayed").Annotations
		kubectl(t, cluster, "apply", "-k", companion)
		waitForControllers(t, cluster)
		if diff := cmp.Diff(old, u.specs()); diff != "" {
			t.Errorf("specs before and after:\n%s", diff)
		}
		if !slices.Contains(u.get("owner").Finalizers, graph.Hold) {
			t.Error("hold is gone")
		}
		o := startOperator(t, cluster)
		o.waitUntilReady("/readyz")
		if err := u.kube.CoreV1().ConfigMaps(u.ns).Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		u.forSubtest(t).waitForObject(u.configMap("owner"), func(live *corev1.ConfigMap) bool { return live == nil })
		u.forSubtest(t).waitForObject(u.configMap("dependent"), func(live *corev1.ConfigMap) bool {
			return live != nil && len(live.OwnerReferences) == 0 && slices.Contains(live.Finalizers, graph.Hold)
		})
		if diff := cmp.Diff(memo, u.get("delayed").Annotations); diff != "" {
			t.Errorf("state annotation before and after:\n%s", diff)
		}
		// Policies without a pinned module are no longer enforced, and report the digest to write.
		kubectl(t, cluster, "wait", "--for=jsonpath={.status.conditions[?(@.type==\"ModuleReady\")].reason}=ModuleNotPinned",
			"--timeout="+timeout.String(), "-n", u.ns, "finalizers.gleaner.dev/f")
		expectNothingForbidden(t, o)
		o.stop()
	})
	step("a removal in another order blocks no ungoverned objects", func(t *testing.T) { u.forSubtest(t).removeInWrongOrder(before) })
	step("a removal in the order of docs/install.md leaves nothing", func(t *testing.T) {
		kubectl(t, cluster, "apply", "-k", companion)
		waitForControllers(t, cluster)
		o := startOperator(t, cluster)
		o.waitUntilReady("/readyz")
		u.forSubtest(t).apply(cluster, upgradeResources, "-n", u.ns, "clustergcpolicies/holds", "finalizers.gleaner.dev/f")
		u.forSubtest(t).createHeld("held")
		removeResources(t, cluster)
		devtest.Eventually(t, timeout, func() error { // the operator may still be working
			if out := u.forSubtest(t).runRelease(); !strings.Contains(out, "No object has a hold.") {
				return fmt.Errorf("gleaner release printed %s", out)
			}
			return nil
		})
		o.stop()
		expectNothingForbidden(t, o)
		kubectl(t, cluster, "delete", "-k", companion, "--timeout", timeout.String())
		u.forSubtest(t).expectObjects(before)
	})
}

// forSubtest returns a copy for a subtest.
func (u *upgradeEnv) forSubtest(t *testing.T) *upgradeEnv {
	w := *u.env
	w.T = t
	return &upgradeEnv{&w, u.cluster}
}

func (u *upgradeEnv) configMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: u.ns, Name: name}}
}

func (u *upgradeEnv) get(name string) *corev1.ConfigMap {
	u.Helper()
	live, err := u.kube.CoreV1().ConfigMaps(u.ns).Get(u.Context(), name, metav1.GetOptions{})
	if err != nil {
		u.Fatal(err)
	}
	return live
}

// createHeld creates an object that gets a hold.
func (u *upgradeEnv) createHeld(name string) {
	u.Helper()
	u.waitForObject(u.create(name, u.ns), func(live *corev1.ConfigMap) bool { return live != nil && slices.Contains(live.Finalizers, graph.Hold) })
}

// createDelayed creates an object without a hold that has lost its owner, which a policy deletes
// later.
func (u *upgradeEnv) createDelayed(name string) {
	u.Helper()
	maps := u.kube.CoreV1().ConfigMaps(u.ns)
	owner, err := maps.Create(u.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "owner-of-" + name, Labels: map[string]string{"free": ""},
	}}, metav1.CreateOptions{})
	if err != nil {
		u.Fatal(err)
	}
	o := u.create(name, u.ns, owner)
	if err := maps.Delete(u.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		u.Fatal(err)
	}
	u.waitForObject(o, func(live *corev1.ConfigMap) bool { return live != nil && live.Annotations["gleaner.dev/memo"] != "" })
}

// specs returns the specs of Gleaner's resources.
func (u *upgradeEnv) specs() map[string]any {
	u.Helper()
	var list unstructured.UnstructuredList
	out := kubectl(u.T, u.cluster, "get", "-A", "-o", "json",
		"clustergcpolicies,gcpolicies,clusterpolicymodules,policymodules,clusterfinalizers.gleaner.dev,finalizers.gleaner.dev")
	if err := list.UnmarshalJSON([]byte(out)); err != nil {
		u.Fatal(err)
	}
	found := map[string]any{}
	for _, o := range list.Items {
		found[o.GetKind()+" "+o.GetName()] = []any{o.Object["spec"], o.GetUID(), o.GetFinalizers(), o.GetGeneration()}
	}
	if len(found) != 3 {
		u.Fatalf("found %v", found)
	}
	return found
}

// runRelease runs gleaner release for all remaining objects, and returns its output.
func (u *upgradeEnv) runRelease() string {
	u.Helper()
	cmd := exec.CommandContext(u.Context(), gleaner.Path(u.T), "release", "--all", "--yes", "--kubeconfig", u.cluster.Kubeconfig())
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.Fatalf("gleaner release: %v\n%s", err, out)
	}
	return string(out)
}

func (u *upgradeEnv) expectNoHolds() {
	u.Helper()
	for _, kind := range []string{"configmaps", "secrets"} {
		if out := kubectl(u.T, u.cluster, "get", kind, "-A", "-o", "yaml"); strings.Contains(out, graph.Hold) {
			u.Errorf("some %s have holds:\n%s", kind, out)
		}
	}
}

// expectObjects waits until the objects are those from before, except the test's own namespaces.
func (u *upgradeEnv) expectObjects(before []string) {
	u.Helper()
	devtest.Eventually(u, timeout, func() error {
		after, err := listAllObjects(u.T, u.cluster)
		after = slices.DeleteFunc(after, func(name string) bool { return strings.Contains(name, u.ns) })
		if diff := cmp.Diff(before, after); err == nil && diff != "" {
			err = fmt.Errorf("objects before and after:\n%s", diff)
		}
		return err
	})
}

// removeInWrongOrder removes the operator while policies are in force.
func (u *upgradeEnv) removeInWrongOrder(before []string) {
	u.Helper()
	kubectl(u.T, u.cluster, "delete", "namespace", namespace)

	other := newEnv(u.T, u.cluster.RESTConfig()) // no policy governs its objects
	owner := other.create("owner", other.ns)
	dependent := other.create("dependent", other.ns, owner)
	if err := u.kube.CoreV1().ConfigMaps(other.ns).Delete(u.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		u.Fatal(err)
	}
	other.waitForObject(dependent, func(live *corev1.ConfigMap) bool { return live == nil })
	kubectl(u.T, u.cluster, "delete", "namespace", other.ns, "--timeout", timeout.String())
	devtest.Eventually(u, timeout, func() error { // no deletes call the webhook
		_, err := u.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(u.Context(), "gleaner-veto", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("webhook configuration still exists: %w", err)
		}
		return nil
	})
	devtest.Eventually(u, timeout, func() error { // API servers read it with a delay
		made, err := u.kube.CoreV1().ConfigMaps(u.ns).Create(u.Context(), u.configMap("free"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && slices.Contains(made.Finalizers, graph.Hold) {
			err = errors.New("new objects still get a hold")
		}
		return err
	})

	kubectl(u.T, u.cluster, "delete", "-n", u.ns, "configmaps/dependent", "--wait=false")
	if out := u.runRelease(); !strings.Contains(out, "configmaps/dependent") {
		u.Errorf("gleaner release printed %s", out)
	}
	u.waitForObject(u.configMap("dependent"), func(live *corev1.ConfigMap) bool { return live == nil })
	u.expectNoHolds()
	if hasMutatingPolicies(u.env) {
		kubectl(u.T, u.cluster, "delete", "mutatingadmissionpolicies,mutatingadmissionpolicybindings", "-l", "app.kubernetes.io/managed-by=gleaner")
	}
	kubectl(u.T, u.cluster, "delete", "-k", companion, "--ignore-not-found", "--timeout", timeout.String())
	u.expectObjects(before)
}

func expectNothingForbidden(t *testing.T, o *operator) {
	t.Helper()
	if strings.Contains(strings.ToLower(o.process.Log.String()), "forbidden") {
		t.Error("a request was forbidden: see the operator's log")
	}
}

// removeResources runs the commands in docs/install.md that delete resources.
func removeResources(t *testing.T, cluster *devcluster.Cluster) {
	t.Helper()
	text, err := os.ReadFile("../../docs/install.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n## Remove\n")
	section, _, _ = strings.Cut(section, "gleaner release")
	commands := 0
	for line := range strings.Lines(section) {
		if arguments, ok := strings.CutPrefix(strings.TrimSpace(line), "kubectl "); ok {
			kubectl(t, cluster, append(strings.Fields(arguments), "--timeout", timeout.String())...)
			commands++
		}
	}
	if commands != 2 {
		t.Errorf("found %d commands in docs/install.md", commands)
	}
}

// writeReleased writes the current overlay without the descriptions, which
// are nine tenths of it.
func writeReleased(t *testing.T, cluster *devcluster.Cluster) {
	t.Helper()
	text := "# The initial state of an upgrade: see TestUpgradeAndRemoval.\n"
	for i, document := range bytes.Split([]byte(kubectl(t, cluster, "kustomize", companion)), []byte("\n---\n")) {
		var object map[string]any
		if err := yaml.Unmarshal(document, &object); err != nil {
			t.Fatal(err)
		}
		if object["kind"] == "CustomResourceDefinition" {
			removeDescriptions(object)
		}
		plain, err := yaml.Marshal(object)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 {
			text += "---\n"
		}
		text += string(plain)
	}
	writeFile(t, filepath.FromSlash(released), []byte(text), 0o644)
}

func removeDescriptions(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["description"].(string); ok {
			delete(v, "description")
		}
		for _, part := range v {
			removeDescriptions(part)
		}
	case []any:
		for _, part := range v {
			removeDescriptions(part)
		}
	}
}
