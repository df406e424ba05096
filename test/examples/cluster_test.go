package examples

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

func TestBucketFinalizer_DeletesTheBucketFirst(t *testing.T) {
	s := newStorage(t)
	s.keepVersions()
	s.put("a", "a", "dir/b&c", "d")
	s.send("DELETE", "/photos/d", "", 204)

	w := newEnv(t, "bucket-finalizer", "http://127.0.0.1:7070", s.URL, "=example,", "="+s.AccessKey+",", "=example-secret", "="+s.SecretKey)
	w.trustCA(s.CA)
	w.install("bucket-finalizer", "local", "clusterfinalizer/bucket", "")
	w.waitForEnforced("clusterfinalizer", "bucket")
	w.kubectl("apply", "-f", filepath.Join(w.dir, "bucket.yaml"))
	w.waitForFinalizer("example.com/bucket", "bucket", "photos")

	w.kubectl("delete", "bucket", "photos", "--wait=false")
	w.waitForDeletion("bucket", "photos")
	s.expectNoBucket()
}

// trustCA configures the example for a server with a self-signed certificate: it adds the
// certificate, and permission to read it.
func (w *env) trustCA(ca []byte) {
	w.Helper()
	w.write("local/ca.crt", ca)
	name := filepath.Join(w.dir, "local", "kustomization.yaml")
	text, err := os.ReadFile(name)
	if err != nil {
		w.Fatal(err)
	}
	w.write("local/kustomization.yaml", []byte(string(text)+`
    - op: add
      path: /spec/grants/http/0/ca
      value: {configMapKeyRef: {namespace: gleaner-examples, name: bucket-ca, key: ca.crt}}
- target: {kind: Role, name: bucket-finalizer}
  patch: |
    - op: add
      path: /rules/-
      value: {apiGroups: [""], resources: [configmaps], resourceNames: [bucket-ca], verbs: [get]}
configMapGenerator:
- {name: bucket-ca, namespace: gleaner-examples, files: [ca.crt]}
`))
}

// recordServer runs the server of the example, and returns its URL.
func recordServer(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "server")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./server")
	build.Dir = exampleFolder("dns-finalizer")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build the server: %v\n%s", err, out)
	}
	server := exec.CommandContext(t.Context(), program, "-child", "-address", "127.0.0.1:0")
	stdin, err := server.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := server.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = stdin.Close()
		_ = server.Wait()
	})
	url, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(url)
}

// sendRequest sends the server a request, as curl in the README does, and returns the
// status.
func sendRequest(t *testing.T, method, url, token, body string) int {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", token)
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

func TestDNSFinalizer_DeletesTheRecordFirst(t *testing.T) {
	url := recordServer(t)
	record := url + "/zones/example.com/records/A/web"
	if status := sendRequest(t, "PUT", record, "Bearer example", "192.0.2.1"); status != http.StatusNoContent {
		t.Fatalf("put record: status %d", status)
	}
	if status := sendRequest(t, "DELETE", record, "Bearer other", ""); status != http.StatusUnauthorized {
		t.Fatalf("without token: status %d", status)
	}

	w := newEnv(t, "dns-finalizer", "http://127.0.0.1:8053", url)
	w.kubectl("apply", "--server-side", "-k", filepath.Join(w.dir, "local"))
	w.waitForEnforced("finalizers.gleaner.dev", "dns")
	w.kubectl("apply", "-f", filepath.Join(w.dir, "record.yaml"))
	w.waitForFinalizer("default.gleaner.dev/dns", "dnsrecord", "web")

	w.kubectl("delete", "dnsrecord", "web", "--wait=false")
	w.waitForDeletion("dnsrecord", "web")
	if status := sendRequest(t, "GET", record, "Bearer example", ""); status != http.StatusNotFound {
		t.Errorf("get record: status %d", status)
	}
}

func TestOrderedTeardown_DeletesUsersFirst(t *testing.T) {
	w := newEnv(t, "drain-before-delete")
	w.install("drain-before-delete", "deploy", "finalizers.gleaner.dev/drain", "default")
	w.waitForEnforced("finalizers.gleaner.dev", "drain")
	w.kubectl("apply", "-f", filepath.Join(w.dir, "sample.yaml"))
	w.waitForFinalizer("default.gleaner.dev/drain", "configmap", "orders")
	deletions, err := kubernetes.NewForConfigOrDie(w.cluster.RESTConfig()).AppsV1().Deployments("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer deletions.Stop()

	w.kubectl("delete", "configmap", "orders", "--wait=false")
	w.waitForDeletion("configmap", "orders")
	var order []string
	for len(order) < 3 {
		event, open := <-deletions.ResultChan()
		if !open {
			t.Fatalf("watch ended after %q", order)
		}
		if event.Type == watch.Deleted {
			order = append(order, event.Object.(metav1.Object).GetName())
		}
	}
	if want := []string{"web", "api", "report"}; !reflect.DeepEqual(order, want) {
		t.Errorf("deletion order is %q, want %q", order, want)
	}
}

func TestManifest_IsStoredBeforeItsObjectIsDeleted(t *testing.T) {
	w := newEnv(t, "backup-before-delete")
	w.install("backup-before-delete", "deploy", "clusterfinalizer/backup", "")
	w.waitForEnforced("clusterfinalizer", "backup")
	namespace := devtest.Namespace(t, w.cluster.RESTConfig())
	w.kubectl("create", "configmap", "settings", "-n", namespace, "--from-literal=color=red")
	w.kubectl("label", "configmap", "settings", "-n", namespace, "example.com/backup=true")
	w.waitForFinalizer("example.com/backup", "configmap", "settings", "-n", namespace)
	uid := w.kubectl("get", "configmap", "settings", "-n", namespace, "-o", "jsonpath={.metadata.uid}")

	w.kubectl("delete", "configmap", "settings", "-n", namespace, "--wait=false")
	w.waitForDeletion("configmap", "settings", "-n", namespace)
	stored := w.kubectl("get", "configmap", "configmap-"+uid, "-n", "backups", "-o", `jsonpath={.data.manifest\.json}`)
	w.write("restored.json", []byte(stored))
	w.kubectl("apply", "-f", filepath.Join(w.dir, "restored.json"))
	if got := w.kubectl("get", "configmap", "settings", "-n", namespace, "-o", "jsonpath={.data}"); got != `{"color":"red"}` {
		t.Errorf("restored %s", got)
	}
}

func TestHello(t *testing.T) {
	w := newEnv(t, "hello-policy")
	w.kubectl("apply", "-f", filepath.Join(w.dir, "resources.yaml"))
	w.waitForEnforced("clusterfinalizer", "hello")
	w.waitForEnforced("clustergcpolicy", "hello")

	namespace := devtest.Namespace(t, w.cluster.RESTConfig())
	w.kubectl("create", "configmap", "owner", "-n", namespace)
	uid := w.kubectl("get", "configmap", "owner", "-n", namespace, "-o", "jsonpath={.metadata.uid}")
	for name, labels := range map[string]string{"kept": `{"keep":"true"}`, "dropped": `{}`, "greeted": `{"hello":"true"}`} {
		w.write(name+".json", fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q,"labels":%s,
			"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`, name, namespace, labels, uid))
		w.kubectl("apply", "-f", filepath.Join(w.dir, name+".json"))
	}
	w.waitForFinalizer("example.com/hello", "configmap", "greeted", "-n", namespace)
	w.kubectl("delete", "configmap", "owner", "-n", namespace)
	w.waitForDeletion("configmap", "dropped", "-n", namespace)

	w.eventually(func() error { // kept without the reference; terminating with the finalizer
		var kept, greeted struct{ Metadata metav1.ObjectMeta }
		for name, into := range map[string]any{"kept": &kept, "greeted": &greeted} {
			if err := json.Unmarshal([]byte(w.kubectl("get", "configmap", name, "-n", namespace, "-o", "json")), into); err != nil {
				return err
			}
		}
		if len(kept.Metadata.OwnerReferences) != 0 || kept.Metadata.DeletionTimestamp != nil || greeted.Metadata.DeletionTimestamp == nil {
			return fmt.Errorf("kept is %+v, greeted is %+v", kept, greeted)
		}
		return nil
	})
	w.kubectl("annotate", "configmap", "greeted", "-n", namespace, "goodbye=true")
	w.waitForDeletion("configmap", "greeted", "-n", namespace)
}
