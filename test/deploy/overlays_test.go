package deploy

import (
	"errors"
	"fmt"
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

// Each overlay is applied, run, and removed, one after the other.
func TestOverlays(t *testing.T) {
	t.Run("beside the built-in collector", func(t *testing.T) {
		cluster := bare(t)
		for _, o := range []overlay{
			{folder: companion},
			{folder: companion, claim: "by the API server", flags: []string{"--server-side"}},
			{folder: "../../config/dev"},
			{folder: "../../config/cert-manager", before: certManager},
		} {
			o.cluster = cluster
			t.Run(filepath.Base(o.folder)+" "+o.claim, o.test)
		}
	})
	t.Run("alone", func(t *testing.T) {
		o := overlay{folder: primary, cluster: bare(t, noCollector...)}
		t.Run(filepath.Base(o.folder), o.test)
	})
}

// overlay is a folder that is applied.
type overlay struct {
	cluster       *devcluster.Cluster
	folder, claim string
	flags         []string                                           // of kubectl apply
	before        func(*testing.T, *devcluster.Cluster) (and func()) // what has to be there first, and what it does then; nil: nothing
}

func (o overlay) test(t *testing.T) {
	run := func() {}
	if o.before != nil {
		run = o.before(t, o.cluster)
	}
	before, err := everything(t, o.cluster)
	if err != nil {
		t.Fatal(err)
	}
	apply := append([]string{"apply", "-k", o.folder}, o.flags...)
	kubectl(t, o.cluster, apply...)
	settled(t, o.cluster)
	first := wanted(t, o.cluster, o.folder)

	out := kubectl(t, o.cluster, apply...)
	t.Run("is the same when it is applied again", func(t *testing.T) {
		if diff := cmp.Diff(first, wanted(t, o.cluster, o.folder)); diff != "" {
			t.Errorf("after the first and the second time:\n%s", diff)
		}
		for line := range strings.Lines(out) {
			// kubectl sends the selector of a budget each time.
			if o.flags == nil && !strings.HasSuffix(line, " unchanged\n") && !strings.HasPrefix(line, "poddisruptionbudget") {
				t.Errorf("kubectl says %s", line)
			}
		}
	})
	run()
	t.Run("works as its service account with the arguments of its Deployment", o.works)

	t.Run("goes without a trace when it is deleted", func(t *testing.T) {
		// With the namespace, which is among it, goes what is in it.
		kubectl(t, o.cluster, "delete", "-k", o.folder, "--ignore-not-found", "--timeout", patience.String())
		devtest.Eventually(t, patience, func() error {
			after, err := everything(t, o.cluster)
			if diff := cmp.Diff(before, after); err == nil && diff != "" {
				err = fmt.Errorf("before it was applied and after it was deleted:\n%s", diff)
			}
			return err
		})
	})
}

const keepsAll = `{"apiVersion":"gleaner.dev/v1alpha1","kind":"ClusterGCPolicy","metadata":{"name":"keep"},"spec":{
  "resources":[{"apiGroups":[""],"resources":["configmaps"]}],"fixed":{"collect":{"decision":"Orphan"}},"mode":"Enforce"}}`

// works has the operator keep what has lost its owner, while a policy says so.
func (o overlay) works(t *testing.T) {
	w := newWorld(t, o.cluster.RESTConfig())
	operator := startOperator(t, o.cluster)
	operator.ready("/healthz", "/readyz")
	policy := filepath.Join(t.TempDir(), "policy.json")
	write(t, policy, []byte(keepsAll), 0o600)
	kubectl(t, o.cluster, "apply", "-f", policy)
	kubectl(t, o.cluster, "wait", "clustergcpolicies/keep", "--for=condition=Enforcing", "--timeout", patience.String())
	w.keeps("kept")

	kubectl(t, o.cluster, "delete", "-f", policy)
	kubectl(t, o.cluster, "wait", "clustergcpolicies/keep", "--for=delete", "--timeout", patience.String())
	devtest.Eventually(t, patience, func() error {
		_, err := w.kube.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(t.Context(), "gleaner-veto", metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return fmt.Errorf("the webhook's configuration is still there: %w", err)
		}
		return nil
	})
	operator.stop()
	if strings.Contains(strings.ToLower(operator.log.String()), "forbidden") {
		t.Error("something is forbidden: see its log")
	}
	kubectl(t, o.cluster, "delete", "namespace", w.ns) // and wait, so that nothing of it is taken for a trace
}

// keeps waits until an object whose owner is deleted is one that has none.
func (w *world) keeps(name string) {
	w.Helper()
	owner := w.make("owner-of-"+name, w.ns)
	kept := w.make(name, w.ns, owner)
	if err := w.kube.CoreV1().ConfigMaps(w.ns).Delete(w.Context(), owner.Name, metav1.DeleteOptions{}); err != nil {
		w.Fatal(err)
	}
	w.isKept(kept)
}

func (w *world) isKept(o *corev1.ConfigMap) {
	w.Helper()
	devtest.Eventually(w, patience, func() error {
		live, err := w.kube.CoreV1().ConfigMaps(w.ns).Get(w.Context(), o.Name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			w.Fatalf("%s was not kept", o.Name)
		}
		if err == nil && len(live.OwnerReferences) != 0 {
			err = errors.New("it still names its owner")
		}
		return err
	})
}
