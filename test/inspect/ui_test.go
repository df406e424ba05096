package inspect

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/devcluster/freeport"
	"github.com/gleaner-dev/gleaner/test/browse"
	"github.com/gleaner-dev/gleaner/test/program"
)

var printedAddress = regexp.MustCompile(`https?://\S+`)

// startUI starts gleaner ui, and returns the address that it prints.
func (s *testbed) startUI(t *testing.T, args ...string) string {
	t.Helper()
	printed := filepath.Join(t.TempDir(), "printed")
	out, err := os.Create(printed)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close() // the process has its own descriptor
	cmd := exec.Command(s.binary, append([]string{"ui"}, args...)...)
	cmd.Stdout = out
	p, err := program.Start(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Stop(timeout); err != nil {
			t.Errorf("%v\n%s", err, p.Log.String())
		}
	})
	var address string
	devtest.Eventually(t, timeout, func() error {
		text, err := os.ReadFile(printed)
		if address = string(printedAddress.Find(text)); address == "" {
			err = fmt.Errorf("it has printed no address: %s %s %w", text, p.Log.String(), p.Ended())
		}
		return err
	})
	return address
}

func (s *testbed) kubectl(t *testing.T, args ...string) {
	t.Helper()
	if out, err := s.cluster.Kubectl(t.Context(), args...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// window returns a browser that ends with the test.
func window(t *testing.T) *browse.Browser {
	t.Helper()
	b, err := browse.Start(t.Context())
	browse.Require(t, err)
	t.Cleanup(b.Close)
	return b.For(t)
}

// token returns the token of a new service account without permissions.
func (s *testbed) token(t *testing.T, name string) string {
	t.Helper()
	account, err := s.kube.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	request, err := s.kube.CoreV1().ServiceAccounts(account.Namespace).CreateToken(t.Context(), account.Name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return request.Status.Token
}

// The cluster and its operator, as an administrator sees them.
func TestUI_ShowsWhatHappensInTheCluster(t *testing.T) {
	s := sharedTestbed(t)
	b := window(t)
	s.kubectl(t, "apply", "-f", "testdata/asker.yaml")
	s.kubectl(t, "create", "namespace", "ui")
	t.Cleanup(func() {
		_, _ = s.cluster.Kubectl(context.WithoutCancel(t.Context()), "delete", "namespace/ui", "clustergcpolicy/ui", "--ignore-not-found", "--wait=false")
	})
	s.kubectl(t, "create", "deployment", "web", "--image=example.com/web", "-n", "ui")
	address := s.startUI(t, "--open=false", "--kubeconfig="+s.cluster.Kubeconfig(), "-n", "ui", "--operator-namespace="+namespace, "--token-of=ops/asker")
	base, _, _ := strings.Cut(address, "/open")

	b.Open(address)
	b.Wait("main", "Collecting")
	b.Open(base + "/graph")
	b.Wait(".tree", "Deployment/web")
	b.Wait(".tree", "ReplicaSet/web-")
	b.Click(`a[aria-label="Preview the deletion of Deployment/web"]`)
	b.Wait(".preview", "If Deployment ui/web were deleted (background)")
	b.Wait(".preview .counts", "stays 0")

	b.Open(base + "/")
	s.kubectl(t, "delete", "deployment", "web", "-n", "ui")
	b.Wait("main", "Deployment/web") // without reading the page again
	b.Open(base + "/decisions?owner=Deployment/web")
	b.Wait(".decisions", "OwnersAbsent")
	b.Click(".decisions summary")
	b.Wait(".decisions .chain", "Deployment ui/web")

	const policy = `{"apiVersion": "gleaner.dev/v1alpha1", "kind": "ClusterGCPolicy", "metadata": {"name": "ui"}, "spec": {"resources": [{"apiGroups": ["batch"], "resources": ["jobs"]}], "fixed": {"collect": {"decision": "Orphan"}}, "mode": "Monitor"}}`
	file := filepath.Join(t.TempDir(), "policy.json")
	if err := os.WriteFile(file, []byte(policy), 0o600); err != nil {
		t.Fatal(err)
	}
	s.kubectl(t, "apply", "-f", file)
	devtest.Eventually(t, timeout, func() error {
		b.Open(base + "/policies")
		if text := b.Text("main"); !strings.Contains(text, "ClusterGCPolicy ui") || !strings.Contains(text, "ModuleReady") {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	b.Click(`a[href="/policies?count=yes"]`)
	b.Wait("main", "Governs jobs in batch: 0 objects")

	const stuck = `{"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "stuck", "namespace": "ui", "finalizers": ["example.com/drain"]}}`
	if err := os.WriteFile(file, []byte(stuck), 0o600); err != nil {
		t.Fatal(err)
	}
	s.kubectl(t, "apply", "-f", file)
	t.Cleanup(func() {
		_, _ = s.cluster.Kubectl(context.WithoutCancel(t.Context()), "patch", "secret/stuck", "-n", "ui", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	})
	s.kubectl(t, "delete", "secret/stuck", "-n", "ui", "--wait=false")
	devtest.Eventually(t, timeout, func() error {
		b.Open(base + "/stuck?longer-than=0s")
		if text := b.Text("main"); !strings.Contains(text, "gleaner release secrets/stuck -n ui --finalizer example.com/drain") {
			return fmt.Errorf("%s", text)
		}
		return nil
	})
	b.Open(base + "/object?kind=Secret&namespace=ui&name=stuck")
	b.Wait("main", "its controller to remove it")
	b.ExpectNoMessages()

	if _, err := s.kube.CoreV1().Secrets("ui").Get(t.Context(), "stuck", metav1.GetOptions{}); err != nil {
		t.Errorf("the pages changed something: %v", err)
	}
}

// What a user may not read is unknown, and what the user may not do fails.
func TestUI_HasThePermissionsOfTheUser(t *testing.T) {
	s := sharedTestbed(t)
	b := window(t)
	config := rest.AnonymousClientConfig(s.cluster.RESTConfig())
	config.BearerToken = s.token(t, "nobody")
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := devcluster.WriteKubeconfig(path, config); err != nil {
		t.Fatal(err)
	}
	address := s.startUI(t, "--open=false", "--kubeconfig="+path)
	base, _, _ := strings.Cut(address, "/open")
	b.Open(address)
	b.Wait("main", `cannot list resource "pods"`)
	for path, want := range map[string]string{
		"/graph": "could not be read", "/stuck": "could not be read", "/decisions": `cannot list resource "pods"`, "/policies": "could not be read",
	} {
		b.Open(base + path)
		b.Wait("main", want)
	}
}

// Users who log in see what their tokens may read, and can change nothing.
func TestUI_LetsUsersLogIn(t *testing.T) {
	s := sharedTestbed(t)
	b := window(t)
	s.kubectl(t, "create", "namespace", "logins")
	s.kubectl(t, "create", "deployment", "web", "--image=example.com/web", "-n", "logins")
	token := s.token(t, "viewer")
	s.kubectl(t, "create", "rolebinding", "viewer", "--clusterrole=view", "--serviceaccount=default:viewer", "-n", "logins")
	t.Cleanup(func() {
		_, _ = s.cluster.Kubectl(context.WithoutCancel(t.Context()), "delete", "namespace/logins", "--wait=false")
	})
	// The command has no credentials of its own.
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := devcluster.WriteKubeconfig(path, rest.AnonymousClientConfig(s.cluster.RESTConfig())); err != nil {
		t.Fatal(err)
	}
	port, err := freeport.Get()
	if err != nil {
		t.Fatal(err)
	}
	s.kubectl(t, "apply", "-k", "../../config/ui")
	deployed, err := s.kube.AppsV1().Deployments("gleaner-ui").Get(t.Context(), "gleaner-ui", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = s.cluster.Kubectl(context.WithoutCancel(t.Context()), "delete", "-k", "../../config/ui", "--wait=false")
	})
	c := deployed.Spec.Template.Spec.Containers[0]
	if c.Args[0] != "ui" || c.LivenessProbe.HTTPGet.Path != "/healthz" {
		t.Fatalf("the Pod runs %v", c.Args)
	}
	address := s.startUI(t, append(c.Args[1:], "--kubeconfig="+path, fmt.Sprint("--port=", port), "--address=127.0.0.1")...)
	b.Open(address + "/graph?namespace=logins")
	b.Wait("main", "Log in")
	b.Click("input[name=token]")
	b.Type("wrong")
	b.Press("Enter")
	b.Wait("main", "does not accept the token")
	b.Click("input[name=token]")
	b.Type(token)
	b.Press("Enter")
	b.Wait(".tree", "Deployment/web")
	b.Wait("header", "system:serviceaccount:default:viewer")
	if text := b.Text(".tree"); strings.Contains(text, "Preview deletion") {
		t.Errorf("a preview, which would evaluate modules for all users: %s", text)
	}
	b.Open(address + "/graph?namespace=kube-system")
	b.Wait("main", "could not be read")
	b.Open(address + "/")
	if text := b.Text("main"); strings.Contains(text, "Pause deletions") {
		t.Errorf("a button to pause: %s", text)
	}
	b.Click(".where button")
	b.Wait("main", "Log in")
	b.Open(address + "/graph?namespace=logins")
	b.Wait("main", "Log in")
}
