package devcluster_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/child/childtest"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

const testTimeout = 30 * time.Second // for what takes a second on an idle machine

func TestMain(m *testing.M) {
	devtest.Run(m, devcluster.Options{})
}

func TestTheServerSaysTheVersionItWasBuiltFrom(t *testing.T) {
	client := clientFor(t, devtest.Shared(t).RESTConfig())
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.GitVersion != "v1.37.2" {
		t.Errorf("server says %s, want v1.37.2", version.GitVersion)
	}
}

func TestConfigFor_HasRBACPermissionsOnly(t *testing.T) {
	cluster := devtest.Shared(t)
	namespace := devtest.Namespace(t, cluster.RESTConfig())
	cfg, err := cluster.ConfigFor("jane", "readers")
	if err != nil {
		t.Fatal(err)
	}
	jane := clientFor(t, cfg).CoreV1().ConfigMaps(namespace)

	if _, err := jane.List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Fatalf("list without a binding: got %v, want forbidden", err)
	}
	bindReaders(t, cluster, namespace)
	devtest.Eventually(t, testTimeout, func() error {
		_, err := jane.List(t.Context(), metav1.ListOptions{})
		return err
	})
	err = jane.Delete(t.Context(), "kube-root-ca.crt", metav1.DeleteOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("delete with a binding to view: got %v, want forbidden", err)
	}
}

func bindReaders(t *testing.T, cluster *devcluster.Cluster, namespace string) {
	t.Helper()
	admin := clientFor(t, cluster.RESTConfig())
	_, err := admin.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "readers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: "readers"}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

func TestKubectlWorksAndOnlyItsOwnerReadsTheKubeconfig(t *testing.T) {
	cluster := devtest.Shared(t)
	out, err := cluster.Kubectl(t.Context(), "get", "namespace", "default", "-o", "name")
	if err != nil {
		t.Fatal(err)
	}
	if out != "namespace/default\n" {
		t.Errorf("kubectl printed %q", out)
	}
	if _, err := cluster.Kubectl(t.Context(), "get", "nonsense"); err == nil || !strings.Contains(err.Error(), `"nonsense"`) {
		t.Errorf("error of a bad command does not say what kubectl said: %v", err)
	}
	info, err := os.Stat(cluster.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("kubeconfig has mode %s, want 0600", info.Mode())
	}
}

func TestStart_TwoClusters(t *testing.T) {
	var clusters [2]*devcluster.Cluster
	var starts errgroup.Group
	for i := range clusters {
		starts.Go(func() (err error) {
			clusters[i], err = devcluster.Start(t.Context(), devcluster.Options{NoControllerManager: true})
			return err
		})
	}
	err := starts.Wait()
	for _, c := range clusters {
		if c != nil {
			stopOnCleanup(t, c)
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	first, second := clusters[0].RESTConfig(), clusters[1].RESTConfig()
	namespace := devtest.Namespace(t, first)
	_, err = clientFor(t, second).CoreV1().Namespaces().Get(t.Context(), namespace, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("namespace of the first cluster in the second: got %v, want not found", err)
	}
	first.CAData = second.CAData // the server is believed, the client is not
	first.Host = second.Host
	_, err = clientFor(t, first).CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{})
	if !apierrors.IsUnauthorized(err) {
		t.Errorf("admin of the first cluster at the second: got %v, want unauthorized", err)
	}
}

func TestStop_RemovesEverything(t *testing.T) {
	before := goleak.IgnoreCurrent()
	dir := t.TempDir()
	cluster, err := devcluster.Start(t.Context(), devcluster.Options{Dir: dir, Controllers: []string{"namespace-controller"}})
	if err != nil {
		t.Fatal(err)
	}
	pids := cluster.PIDs()
	want := []string{devcluster.Etcd, devcluster.APIServer, devcluster.ControllerManager}
	for _, name := range want {
		if !childtest.IsRunning(pids[name]) {
			t.Errorf("%s does not run", name)
		}
	}
	for range 2 { // the second does nothing
		if err := cluster.Stop(); err != nil {
			t.Fatal(err)
		}
	}
	for name, pid := range pids {
		if childtest.IsRunning(pid) {
			t.Errorf("%s still runs", name)
		}
	}
	if left := filesIn(t, dir); len(left) > 0 {
		t.Errorf("files left: %s", left)
	}
	if len(cluster.PIDs()) > 0 {
		t.Errorf("PIDs after Stop: %v", cluster.PIDs())
	}
	goleak.VerifyNone(t, before)
}

func TestStart_ErrorContainsLog(t *testing.T) {
	for component, opts := range map[string]devcluster.Options{
		devcluster.Etcd:              {EtcdFlags: []string{"--no-such-flag"}},
		devcluster.APIServer:         {APIServerFlags: []string{"--no-such-flag"}},
		devcluster.ControllerManager: {ControllerManagerFlags: []string{"--no-such-flag"}},
	} {
		t.Run(component, func(t *testing.T) {
			opts.Dir, opts.LogDir = t.TempDir(), t.TempDir()
			cluster, err := devcluster.Start(t.Context(), opts)
			if err == nil {
				stopOnCleanup(t, cluster)
				t.Fatal("started")
			}
			log := filepath.Join(opts.LogDir, component+".log")
			for _, want := range []string{component, log, "no-such-flag"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("error does not mention %s: %v", want, err)
				}
			}
			if _, err := os.Stat(log); err != nil {
				t.Errorf("log was not kept: %v", err)
			}
			if left := filesIn(t, opts.Dir); len(left) > 0 {
				t.Errorf("files left: %s", left)
			}
		})
	}
}

func TestStart_CanceledLeavesNoProcess(t *testing.T) {
	before := goleak.IgnoreCurrent()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // in the middle of it
	defer cancel()
	cluster, err := devcluster.Start(ctx, devcluster.Options{Dir: t.TempDir(), LogDir: t.TempDir()})
	if err == nil {
		stopOnCleanup(t, cluster)
		t.Skip("this machine starts a cluster within a second")
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want %v", err, context.DeadlineExceeded)
	}
	goleak.VerifyNone(t, before) // a process has a goroutine that waits for it
}

func stopOnCleanup(t *testing.T, c *devcluster.Cluster) {
	t.Helper()
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// In tests, a component uses one processor, since there are many.
func TestProcessors_AreThoseOfTheOptions(t *testing.T) {
	metrics, err := clientFor(t, devtest.Shared(t).RESTConfig()).CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(metrics), "\ngo_sched_gomaxprocs_threads 1\n") {
		t.Error("the API server uses other processors than one")
	}
}

func clientFor(t *testing.T, cfg *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func configMap(name string, owners ...metav1.OwnerReference) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}
}

func filesIn(t *testing.T, dir string) []string {
	t.Helper()
	var found []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if path != dir {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Clip(found)
}
