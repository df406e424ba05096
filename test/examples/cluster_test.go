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

func TestABucketGoesBeforeTheObjectThatStandsForIt(t *testing.T) {
	s := newStorage(t)
	s.keepVersions()
	s.put("a", "a", "dir/b&c", "d")
	s.send("DELETE", "/photos/d", "", 204)

	w := newWorld(t, "bucket-finalizer", "http://127.0.0.1:7070", s.URL, "=example,", "="+s.AccessKey+",", "=example-secret", "="+s.SecretKey)
	w.trust(s.CA)
	w.install("bucket-finalizer", "local", "clusterfinalizer/bucket", "")
	w.enforced("clusterfinalizer", "bucket")
	w.kubectl("apply", "-f", filepath.Join(w.dir, "bucket.yaml"))
	w.has("example.com/bucket", "bucket", "photos")

	w.kubectl("delete", "bucket", "photos", "--wait=false")
	w.gone("bucket", "photos")
	s.gone()
}

// trust adds to the copy of the example what a server with a certificate of its own
// takes: the certificate, and the right to read it.
func (w *world) trust(ca []byte) {
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

// recordServer is the program of the example, and where it listens.
func recordServer(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "server")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./server")
	build.Dir = folder("dns-finalizer")
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

// send sends the server a request as its README's curl does, and returns the
// status.
func send(t *testing.T, method, url, token, body string) int {
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

func TestARecordGoesBeforeTheObjectThatStandsForIt(t *testing.T) {
	url := recordServer(t)
	record := url + "/zones/example.com/records/A/web"
	if status := send(t, "PUT", record, "Bearer example", "192.0.2.1"); status != http.StatusNoContent {
		t.Fatalf("put the record: %d", status)
	}
	if status := send(t, "DELETE", record, "Bearer other", ""); status != http.StatusUnauthorized {
		t.Fatalf("without the token: %d", status)
	}

	w := newWorld(t, "dns-finalizer", "http://127.0.0.1:8053", url)
	w.kubectl("apply", "--server-side", "-k", filepath.Join(w.dir, "local"))
	w.enforced("finalizers.gleaner.dev", "dns")
	w.kubectl("apply", "-f", filepath.Join(w.dir, "record.yaml"))
	w.has("default.gleaner.dev/dns", "dnsrecord", "web")

	w.kubectl("delete", "dnsrecord", "web", "--wait=false")
	w.gone("dnsrecord", "web")
	if status := send(t, "GET", record, "Bearer example", ""); status != http.StatusNotFound {
		t.Errorf("look for the record: %d", status)
	}
}

func TestUsersGoStageByStageBeforeWhatTheyUse(t *testing.T) {
	w := newWorld(t, "drain-before-delete")
	w.install("drain-before-delete", "deploy", "finalizers.gleaner.dev/drain", "default")
	w.enforced("finalizers.gleaner.dev", "drain")
	w.kubectl("apply", "-f", filepath.Join(w.dir, "sample.yaml"))
	w.has("default.gleaner.dev/drain", "configmap", "orders")
	deletions, err := kubernetes.NewForConfigOrDie(w.cluster.RESTConfig()).AppsV1().Deployments("default").Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer deletions.Stop()

	w.kubectl("delete", "configmap", "orders", "--wait=false")
	w.gone("configmap", "orders")
	var order []string
	for len(order) < 3 {
		event, open := <-deletions.ResultChan()
		if !open {
			t.Fatalf("the watch ended after %q", order)
		}
		if event.Type == watch.Deleted {
			order = append(order, event.Object.(metav1.Object).GetName())
		}
	}
	if want := []string{"web", "api", "report"}; !reflect.DeepEqual(order, want) {
		t.Errorf("went in the order %q, want %q", order, want)
	}
}

func TestAManifestIsStoredBeforeItsObjectGoes(t *testing.T) {
	w := newWorld(t, "backup-before-delete")
	w.install("backup-before-delete", "deploy", "clusterfinalizer/backup", "")
	w.enforced("clusterfinalizer", "backup")
	namespace := devtest.Namespace(t, w.cluster.RESTConfig())
	w.kubectl("create", "configmap", "settings", "-n", namespace, "--from-literal=color=red")
	w.kubectl("label", "configmap", "settings", "-n", namespace, "example.com/backup=true")
	w.has("example.com/backup", "configmap", "settings", "-n", namespace)
	uid := w.kubectl("get", "configmap", "settings", "-n", namespace, "-o", "jsonpath={.metadata.uid}")

	w.kubectl("delete", "configmap", "settings", "-n", namespace, "--wait=false")
	w.gone("configmap", "settings", "-n", namespace)
	stored := w.kubectl("get", "configmap", "configmap-"+uid, "-n", "backups", "-o", `jsonpath={.data.manifest\.json}`)
	w.write("restored.json", []byte(stored))
	w.kubectl("apply", "-f", filepath.Join(w.dir, "restored.json"))
	if got := w.kubectl("get", "configmap", "settings", "-n", namespace, "-o", "jsonpath={.data}"); got != `{"color":"red"}` {
		t.Errorf("restored %s", got)
	}
}

func TestHello(t *testing.T) {
	w := newWorld(t, "hello-policy")
	w.kubectl("apply", "-f", filepath.Join(w.dir, "resources.yaml"))
	w.enforced("clusterfinalizer", "hello")
	w.enforced("clustergcpolicy", "hello")

	namespace := devtest.Namespace(t, w.cluster.RESTConfig())
	w.kubectl("create", "configmap", "owner", "-n", namespace)
	uid := w.kubectl("get", "configmap", "owner", "-n", namespace, "-o", "jsonpath={.metadata.uid}")
	for name, labels := range map[string]string{"kept": `{"keep":"true"}`, "dropped": `{}`, "greeted": `{"hello":"true"}`} {
		w.write(name+".json", fmt.Appendf(nil, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q,"namespace":%q,"labels":%s,
			"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]}}`, name, namespace, labels, uid))
		w.kubectl("apply", "-f", filepath.Join(w.dir, name+".json"))
	}
	w.has("example.com/hello", "configmap", "greeted", "-n", namespace)
	w.kubectl("delete", "configmap", "owner", "-n", namespace)
	w.gone("configmap", "dropped", "-n", namespace)

	w.eventually(func() error { // kept, without the reference; and going, with the finalizer
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
	w.gone("configmap", "greeted", "-n", namespace)
}
