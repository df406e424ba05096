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

var release = flag.Bool("release", false, "write "+released+" anew, as for a release, from the default overlay as it is now")

// released is the companion's overlay of an earlier state, without descriptions. It is
// a file and not taken from history, which a checkout need not have.
const released = "testdata/released.yaml"

// resources are those that people have when they upgrade, with fields of all kinds.
const resources = `
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
  explicit: Override
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

// upgraded is a cluster on which an earlier state is upgraded, and removed.
type upgraded struct {
	*world
	cluster *devcluster.Cluster
}

// An operator that is replaced by another stops and starts; both are today's, since
// what is tried is what their manifests do to what is there.
func TestUpgradeAndRemoval(t *testing.T) {
	cluster := bare(t)
	if *release {
		writeReleased(t, cluster)
	}
	before, err := everything(t, cluster)
	if err != nil {
		t.Fatal(err)
	}
	kubectl(t, cluster, "apply", "-f", released)
	settled(t, cluster)
	u := &upgraded{newWorld(t, cluster.RESTConfig()), cluster}
	var old map[string]any
	step := func(claim string, do func(t *testing.T)) {
		if !t.Run(claim, do) {
			t.FailNow() // each step begins where the last has ended
		}
	}
	step("what there is before the upgrade", func(t *testing.T) {
		o := startOperator(t, cluster)
		o.ready("/readyz")
		u.on(t).applyUnpinned(cluster, resources, "-n", u.ns, "clustergcpolicies/holds")
		u.on(t).holds("owner")
		u.make("dependent", u.ns, u.get("owner"))
		u.on(t).delays("delayed")
		o.stop()
		old = u.specs()
	})
	step("an upgrade loses no field, no hold, and nothing that is remembered", func(t *testing.T) {
		memo := u.get("delayed").Annotations
		kubectl(t, cluster, "apply", "-k", companion)
		settled(t, cluster)
		if diff := cmp.Diff(old, u.specs()); diff != "" {
			t.Errorf("before and after:\n%s", diff)
		}
		if !slices.Contains(u.get("owner").Finalizers, graph.Hold) {
			t.Error("the hold is gone")
		}
		o := startOperator(t, cluster)
		o.ready("/readyz")
		if err := u.kube.CoreV1().ConfigMaps(u.ns).Delete(t.Context(), "owner", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		u.on(t).eventually(u.named("owner"), func(live *corev1.ConfigMap) bool { return live == nil })
		u.on(t).eventually(u.named("dependent"), func(live *corev1.ConfigMap) bool {
			return live != nil && len(live.OwnerReferences) == 0 && slices.Contains(live.Finalizers, graph.Hold)
		})
		if diff := cmp.Diff(memo, u.get("delayed").Annotations); diff != "" {
			t.Errorf("what is remembered, before and after:\n%s", diff)
		}
		// What was enforced without a pin is not any more, and says what to write.
		kubectl(t, cluster, "wait", "--for=jsonpath={.status.conditions[?(@.type==\"ModuleReady\")].reason}=ModuleNotPinned",
			"--timeout="+patience.String(), "-n", u.ns, "finalizers.gleaner.dev/f")
		unforbidden(t, o)
		o.stop()
	})
	step("a removal in another order blocks nothing that no policy governs", func(t *testing.T) { u.on(t).wrongly(before) })
	step("a removal in the order of docs/install.md leaves nothing", func(t *testing.T) {
		kubectl(t, cluster, "apply", "-k", companion)
		settled(t, cluster)
		o := startOperator(t, cluster)
		o.ready("/readyz")
		u.on(t).apply(cluster, resources, "-n", u.ns, "clustergcpolicies/holds", "finalizers.gleaner.dev/f")
		u.on(t).holds("held")
		removeResources(t, cluster)
		devtest.Eventually(t, patience, func() error { // the operator may still be at it
			if out := u.on(t).releases(); !strings.Contains(out, "Nothing there has a hold.") {
				return fmt.Errorf("gleaner release says %s", out)
			}
			return nil
		})
		o.stop()
		unforbidden(t, o)
		kubectl(t, cluster, "delete", "-k", companion, "--timeout", patience.String())
		u.on(t).is(before)
	})
}

// on is the same for a part of the test.
func (u *upgraded) on(t *testing.T) *upgraded {
	w := *u.world
	w.T = t
	return &upgraded{&w, u.cluster}
}

func (u *upgraded) named(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: u.ns, Name: name}}
}

func (u *upgraded) get(name string) *corev1.ConfigMap {
	u.Helper()
	live, err := u.kube.CoreV1().ConfigMaps(u.ns).Get(u.Context(), name, metav1.GetOptions{})
	if err != nil {
		u.Fatal(err)
	}
	return live
}

// holds makes an object that gets a hold.
func (u *upgraded) holds(name string) {
	u.Helper()
	u.eventually(u.make(name, u.ns), func(live *corev1.ConfigMap) bool { return live != nil && slices.Contains(live.Finalizers, graph.Hold) })
}

// delays makes an object that has lost its owner, which no policy governs, and is to
// go later.
func (u *upgraded) delays(name string) {
	u.Helper()
	maps := u.kube.CoreV1().ConfigMaps(u.ns)
	owner, err := maps.Create(u.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name: "owner-of-" + name, Labels: map[string]string{"free": ""},
	}}, metav1.CreateOptions{})
	if err != nil {
		u.Fatal(err)
	}
	o := u.make(name, u.ns, owner)
	if err := maps.Delete(u.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		u.Fatal(err)
	}
	u.eventually(o, func(live *corev1.ConfigMap) bool { return live != nil && live.Annotations["gleaner.dev/memo"] != "" })
}

// specs returns what people have written into resources of Gleaner's.
func (u *upgraded) specs() map[string]any {
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
		u.Fatalf("there are %v", found)
	}
	return found
}

// releases has gleaner release take off what is left, and returns what it says.
func (u *upgraded) releases() string {
	u.Helper()
	cmd := exec.CommandContext(u.Context(), binary(u.T), "release", "--all", "--yes", "--kubeconfig", u.cluster.Kubeconfig())
	out, err := cmd.CombinedOutput()
	if err != nil {
		u.Fatalf("gleaner release: %v\n%s", err, out)
	}
	return string(out)
}

func (u *upgraded) nothingIsHeld() {
	u.Helper()
	for _, kind := range []string{"configmaps", "secrets"} {
		if out := kubectl(u.T, u.cluster, "get", kind, "-A", "-o", "yaml"); strings.Contains(out, graph.Hold) {
			u.Errorf("some %s are held:\n%s", kind, out)
		}
	}
}

// is waits until there is what there was, but for the test's own namespaces.
func (u *upgraded) is(before []string) {
	u.Helper()
	devtest.Eventually(u, patience, func() error {
		after, err := everything(u.T, u.cluster)
		after = slices.DeleteFunc(after, func(name string) bool { return strings.Contains(name, u.ns) })
		if diff := cmp.Diff(before, after); err == nil && diff != "" {
			err = fmt.Errorf("before and after:\n%s", diff)
		}
		return err
	})
}

// wrongly removes the operator while policies are in force.
func (u *upgraded) wrongly(before []string) {
	u.Helper()
	kubectl(u.T, u.cluster, "delete", "namespace", namespace)

	other := newWorld(u.T, u.cluster.RESTConfig()) // no policy governs what is in it
	owner := other.make("owner", other.ns)
	dependent := other.make("dependent", other.ns, owner)
	if err := u.kube.CoreV1().ConfigMaps(other.ns).Delete(u.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		u.Fatal(err)
	}
	other.eventually(dependent, func(live *corev1.ConfigMap) bool { return live == nil })
	kubectl(u.T, u.cluster, "delete", "namespace", other.ns, "--timeout", patience.String())
	devtest.Eventually(u, patience, func() error { // nobody's deletes are asked about
		_, err := u.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(u.Context(), "gleaner-veto", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the webhook's configuration is still there: %w", err)
		}
		return nil
	})
	devtest.Eventually(u, patience, func() error { // API servers hear of it a little later
		made, err := u.kube.CoreV1().ConfigMaps(u.ns).Create(u.Context(), u.named("free"), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && slices.Contains(made.Finalizers, graph.Hold) {
			err = errors.New("what is created gets a hold still")
		}
		return err
	})

	kubectl(u.T, u.cluster, "delete", "-n", u.ns, "configmaps/dependent", "--wait=false")
	if out := u.releases(); !strings.Contains(out, "configmaps/dependent") {
		u.Errorf("gleaner release says %s", out)
	}
	u.eventually(u.named("dependent"), func(live *corev1.ConfigMap) bool { return live == nil })
	u.nothingIsHeld()
	kubectl(u.T, u.cluster, "delete", "mutatingadmissionpolicies,mutatingadmissionpolicybindings", "-l", "app.kubernetes.io/managed-by=gleaner")
	kubectl(u.T, u.cluster, "delete", "-k", companion, "--ignore-not-found", "--timeout", patience.String())
	u.is(before)
}

func unforbidden(t *testing.T, o *operator) {
	t.Helper()
	if strings.Contains(strings.ToLower(o.log.String()), "forbidden") {
		t.Error("something is forbidden: see its log")
	}
}

// removeResources runs the commands of docs/install.md that delete resources.
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
			kubectl(t, cluster, append(strings.Fields(arguments), "--timeout", patience.String())...)
			commands++
		}
	}
	if commands != 2 {
		t.Errorf("docs/install.md has %d commands for it", commands)
	}
}

// writeReleased writes what today's overlay comes to, without the descriptions, which
// are nine tenths of it.
func writeReleased(t *testing.T, cluster *devcluster.Cluster) {
	t.Helper()
	text := "# What an upgrade begins with: see TestUpgradeAndRemoval.\n"
	for i, document := range bytes.Split([]byte(kubectl(t, cluster, "kustomize", companion)), []byte("\n---\n")) {
		var object map[string]any
		if err := yaml.Unmarshal(document, &object); err != nil {
			t.Fatal(err)
		}
		if object["kind"] == "CustomResourceDefinition" {
			undescribe(object)
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
	write(t, filepath.FromSlash(released), []byte(text), 0o644)
}

func undescribe(v any) {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v["description"].(string); ok {
			delete(v, "description")
		}
		for _, part := range v {
			undescribe(part)
		}
	case []any:
		for _, part := range v {
			undescribe(part)
		}
	}
}
