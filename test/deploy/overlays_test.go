package deploy

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

// Each overlay is applied, run, and removed.
func TestOverlays(t *testing.T) {
	t.Run("with the built-in collector", func(t *testing.T) {
		cluster := startBareCluster(t)
		for _, o := range []overlay{
			{folder: companion},
			{folder: companion, claim: "by the API server", flags: []string{"--server-side"}},
			{folder: "../../config/dev"},
			{folder: "../../config/cert-manager", prepare: certManager},
			{folder: withComponent(t, "default", "archive-folder"), claim: "with an archive in a folder", archives: true},
		} {
			o.cluster = cluster
			t.Run(filepath.Base(o.folder)+" "+o.claim, o.test)
		}
	})
	t.Run("alone", func(t *testing.T) {
		cluster := startBareCluster(t, devcluster.WithoutCollector()...)
		for _, o := range []overlay{
			{folder: primary, cluster: cluster},
			{folder: withComponent(t, "primary", "webhooks"), claim: "with webhooks", webhooks: true, cluster: cluster},
			{folder: withComponent(t, "primary", "archive-s3"), claim: "with an archive in a bucket", archives: true, prepare: bucket, cluster: cluster},
		} {
			t.Run(filepath.Base(o.folder)+" "+o.claim, o.test)
		}
	})
}

// overlay is a kustomize overlay under test.
type overlay struct {
	cluster       *devcluster.Cluster
	folder, claim string
	archives      bool                                               // the operator has an archive
	webhooks      bool                                               // it serves webhooks
	flags         []string                                           // of kubectl apply
	prepare       func(*testing.T, *devcluster.Cluster) (and func()) // creates prerequisites, and returns what runs after applying; may be nil
}

func (o overlay) test(t *testing.T) {
	run := func() {}
	if o.prepare != nil {
		run = o.prepare(t, o.cluster)
	}
	before, err := listAllObjects(t, o.cluster)
	if err != nil {
		t.Fatal(err)
	}
	apply := append([]string{"apply", "-k", o.folder}, o.flags...)
	kubectl(t, o.cluster, apply...)
	waitForControllers(t, o.cluster)
	first := wantedObjects(t, o.cluster, o.folder)

	out := kubectl(t, o.cluster, apply...)
	t.Run("does not change when it is applied again", func(t *testing.T) {
		if diff := cmp.Diff(first, wantedObjects(t, o.cluster, o.folder)); diff != "" {
			t.Errorf("after applying it once and twice:\n%s", diff)
		}
		for line := range strings.Lines(out) {
			// kubectl sends the selector of a budget every time.
			if o.flags == nil && !strings.HasSuffix(line, " unchanged\n") && !strings.HasPrefix(line, "poddisruptionbudget") {
				t.Errorf("kubectl printed %s", line)
			}
		}
	})
	run()
	t.Run("works as its service account with the arguments of its Deployment", o.expectWorks)

	t.Run("leaves nothing when it is deleted", func(t *testing.T) {
		// Its namespace is deleted with all objects in it.
		kubectl(t, o.cluster, "delete", "-k", o.folder, "--ignore-not-found", "--timeout", timeout.String())
		devtest.Eventually(t, timeout, func() error {
			after, err := listAllObjects(t, o.cluster)
			if diff := cmp.Diff(before, after); err == nil && diff != "" {
				err = fmt.Errorf("objects before applying and after deletion:\n%s", diff)
			}
			return err
		})
	})
}

const keepsAll = `{"apiVersion":"gleaner.dev/v1alpha1","kind":"ClusterGCPolicy","metadata":{"name":"keep"},"spec":{
  "resources":[{"apiGroups":[""],"resources":["configmaps"]}],"fixed":{"collect":{"decision":"Orphan"}},"mode":"Enforce"}}`

const protectModule = `{"apiVersion":"gleaner.dev/v1alpha1","kind":"ClusterPolicyModule","metadata":{"name":"protect"},"spec":{"rego":{
  "inline":"package gleaner\nprotect := {\"decision\": \"Deny\", \"reason\": \"ask first\"}"}}}`

// protectsAll lacks the digest of the module.
const protectsAll = `{"apiVersion":"gleaner.dev/v1alpha1","kind":"ClusterGCPolicy","metadata":{"name":"protect"},"spec":{
  "resources":[{"apiGroups":[""],"resources":["configmaps"]}],"objectSelector":{"matchLabels":{"protected":"true"}},
  "module":{"name":"protect","digest":"%s"},"mode":"Enforce"}}`

const archivesAll = `{"apiVersion":"gleaner.dev/v1alpha1","kind":"ClusterArchivePolicy","metadata":{"name":"all"},"spec":{
  "resources":[{"apiGroups":["*"],"resources":["*"]}],"deletedBy":"Gleaner"}}`

// withComponent returns an overlay of another one with a component, as docs/install.md says.
func withComponent(t *testing.T, of, component string) string {
	t.Helper()
	folder := t.TempDir()
	copyManifests(t, folder)
	writeFile(t, filepath.Join(folder, "kustomization.yaml"), []byte("resources: [gleaner/config/"+of+"]\ncomponents: [gleaner/config/components/"+component+"]\n"), 0o600)
	return folder
}

// copyManifests copies what kustomize reads into a folder next to an overlay.
func copyManifests(t *testing.T, folder string) {
	t.Helper()
	for _, part := range []string{"config", "crds/manifests"} {
		if err := os.CopyFS(filepath.Join(folder, "gleaner", part), os.DirFS(filepath.Join("../..", part))); err != nil {
			t.Fatal(err)
		}
	}
}

// expectWorks checks that the operator keeps objects without owners while a policy applies.
func (o overlay) expectWorks(t *testing.T) {
	w := newEnv(t, o.cluster.RESTConfig())
	operator := startOperator(t, o.cluster)
	operator.waitUntilReady("/healthz", "/readyz")
	policy := filepath.Join(t.TempDir(), "policy.json")
	writeFile(t, policy, []byte(keepsAll), 0o600)
	kubectl(t, o.cluster, "apply", "-f", policy)
	kubectl(t, o.cluster, "wait", "clustergcpolicies/keep", "--for=condition=Enforcing", "--timeout", timeout.String())
	w.expectKeeps("kept")
	if o.archives {
		archived := filepath.Join(t.TempDir(), "archived.json")
		writeFile(t, archived, []byte(archivesAll), 0o600)
		kubectl(t, o.cluster, "apply", "-f", archived)
		kubectl(t, o.cluster, "wait", "clusterarchivepolicies/all", "--for=condition=Archiving", "--timeout", timeout.String())
		kubectl(t, o.cluster, "delete", "-f", archived, "--timeout", timeout.String())
	}

	if o.webhooks {
		o.expectProtects(w)
		o.expectInheritsGracePeriods(w)
	}
	kubectl(t, o.cluster, "delete", "-f", policy)
	kubectl(t, o.cluster, "wait", "clustergcpolicies/keep", "--for=delete", "--timeout", timeout.String())
	devtest.Eventually(t, timeout, func() error {
		_, err := w.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "gleaner-veto", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("webhook configuration still exists: %w", err)
		}
		return nil
	})
	operator.stop()
	if strings.Contains(strings.ToLower(operator.process.Log.String()), "forbidden") {
		t.Error("a request was forbidden: see the operator's log")
	}
	kubectl(t, o.cluster, "delete", "namespace", w.ns) // and wait, so that it does not count as left over
}

// expectProtects checks that the API server asks the operator about users' requests to delete.
func (o overlay) expectProtects(w *env) {
	t, folder := w.T, w.TempDir()
	module, policy := filepath.Join(folder, "module.json"), filepath.Join(folder, "policy.json")
	writeFile(t, module, []byte(protectModule), 0o600)
	kubectl(t, o.cluster, "apply", "-f", module)
	kubectl(t, o.cluster, "wait", "clusterpolicymodules/protect", "--for=condition=Compiled", "--timeout", timeout.String())
	digest := kubectl(t, o.cluster, "get", "clusterpolicymodules/protect", "-o", "jsonpath={.status.digest}")
	writeFile(t, policy, fmt.Appendf(nil, protectsAll, digest), 0o600)
	kubectl(t, o.cluster, "apply", "-f", policy)
	kubectl(t, o.cluster, "wait", "clustergcpolicies/protect", "--for=condition=Enforcing", "--timeout", timeout.String())
	kubectl(t, o.cluster, "create", "configmap", "protected", "-n", w.ns)
	kubectl(t, o.cluster, "label", "configmap", "protected", "-n", w.ns, "protected=true")
	devtest.Eventually(t, timeout, func() error {
		err := w.kube.CoreV1().ConfigMaps(w.ns).Delete(w.Context(), "protected", metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "ClusterGCPolicy protect denies this deletion: ask first") {
			return fmt.Errorf("deletion: %w", err)
		}
		return nil
	})
	kubectl(t, o.cluster, "delete", "-f", policy, "-f", module, "--timeout", timeout.String())
}

// expectKeeps deletes the owner of an object, and waits until the object has no owner references.
func (w *env) expectKeeps(name string) {
	w.Helper()
	owner := w.create("owner-of-"+name, w.ns)
	kept := w.create(name, w.ns, owner)
	if err := w.kube.CoreV1().ConfigMaps(w.ns).Delete(w.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	w.waitForKept(kept)
}

func (w *env) waitForKept(o *corev1.ConfigMap) {
	w.Helper()
	devtest.Eventually(w, timeout, func() error {
		live, err := w.kube.CoreV1().ConfigMaps(w.ns).Get(w.Context(), o.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			w.Fatalf("%s was not kept", o.Name)
		}
		if err == nil && len(live.OwnerReferences) != 0 {
			err = errors.New("object still has its owner reference")
		}
		return err
	})
}
