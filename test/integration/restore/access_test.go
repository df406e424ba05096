package restore

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/serve"
	"github.com/gleaner-dev/gleaner/operator/debug"
)

const reader = `
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: %[1]s-debug}
rules: [{nonResourceURLs: ["/debug/gc/*"], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: %[1]s-debug}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: %[1]s-debug}
subjects: [{kind: ServiceAccount, namespace: %[1]s, name: reader}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: configmaps, namespace: %[1]s}
rules: [{apiGroups: [""], resources: [configmaps], verbs: [get, create]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: configmaps, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: configmaps}
subjects: [{kind: ServiceAccount, namespace: %[1]s, name: reader}]
`

// serveGuarded serves the archive with the guard of the debug endpoints, and returns the URL.
func (e *env) serveGuarded() string {
	e.Helper()
	kube, err := kubernetes.NewForConfig(e.cluster.RESTConfig())
	if err != nil {
		e.Fatal(err)
	}
	guard, err := debug.NewGuard(kube)
	if err != nil {
		e.Fatal(err)
	}
	source := serve.Source{Archive: e.archive, ReadAccess: guard.ReadAccess(func(gvk schema.GroupVersionKind) (schema.GroupVersionResource, bool) {
		mapping, err := e.Mapper().RESTMapping(gvk.GroupKind(), gvk.Version)
		if err != nil {
			return schema.GroupVersionResource{}, false
		}
		return mapping.Resource, true
	})}
	mux := http.NewServeMux()
	for path, handler := range serve.Handlers(source) {
		filtered, err := guard.Filter(logr.Discard(), handler)
		if err != nil {
			e.Fatal(err)
		}
		mux.Handle(path, filtered)
	}
	server := httptest.NewTLSServer(mux)
	e.Cleanup(server.Close)
	return server.URL
}

// kubeconfigOf returns the kubeconfig of a service account in the test's namespace.
func (e *env) kubeconfigOf(name string) string {
	e.Helper()
	kube, err := kubernetes.NewForConfig(e.cluster.RESTConfig())
	if err != nil {
		e.Fatal(err)
	}
	token, err := kube.CoreV1().ServiceAccounts(e.Namespace).CreateToken(e.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	config := rest.AnonymousClientConfig(e.cluster.RESTConfig())
	config.BearerToken = token.Status.Token
	path := filepath.Join(e.TempDir(), "kubeconfig")
	if err := devcluster.WriteKubeconfig(path, config); err != nil {
		e.Fatal(err)
	}
	return path
}

func TestRestore_UsersRestoreOnlyWhatTheyMayGet(t *testing.T) {
	e := newEnv(t)
	for _, manifest := range strings.Split(fmt.Sprintf(reader, e.Namespace), "---\n") {
		o := e.Create(manifest)
		if o.GetNamespace() == "" {
			t.Cleanup(func() {
				if err := e.Of(o).Delete(e.cleanup(), o.GetName(), metav1.DeleteOptions{}); err != nil {
					t.Logf("clean up: %v", err)
				}
			})
		}
	}
	mine, other := e.ConfigMap("mine"), e.Create("{apiVersion: v1, kind: ServiceAccount, metadata: {name: other}}")
	archived := e.store(archive.Cause{}, mine, other)
	e.Remove([]*unstructured.Unstructured{mine, other})
	endpoint, kubeconfig := e.serveGuarded(), e.kubeconfigOf("reader")
	e.endpoint = endpoint
	out, code := e.run("serviceaccount/other", "-n", e.Namespace, "--yes", "--kubeconfig", kubeconfig)
	if code != 1 || !strings.Contains(out, "nothing is archived of that") {
		t.Errorf("an object that the user may not get: exit code %d\n%s", code, out)
	}
	out, code = e.run("--since", "10m", "-n", e.Namespace, "--yes", "--kubeconfig", kubeconfig)
	if code != 0 || !strings.Contains(out, "Restored 1 object (ConfigMap: 1).") {
		t.Errorf("exit code %d\n%s", code, out)
	}
	e.Compare(archived[:1])
}
