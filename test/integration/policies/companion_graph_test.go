package policies

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/debug"
)

// builtInGraphPath is the path of kube-controller-manager's graph.
const builtInGraphPath = "/debug/controllers/garbage-collector-controller/graph"

// bothGraphs returns both collectors' graphs of the objects connected to some UIDs, as a
// tool receives them.
func (w *env) bothGraphs(uids []string) (theirs, own string, err error) {
	path := builtInGraphPath + "?" + url.Values{"uid": uids}.Encode()
	cluster := devtest.Shared(w)
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: cluster.RESTConfig().CAData}})
	if err != nil {
		return "", "", err
	}
	r, err := http.NewRequestWithContext(w.Context(), http.MethodGet, cluster.ControllerManagerURL()+path, nil)
	if err != nil {
		return "", "", err
	}
	response, err := client.Do(r)
	if err != nil {
		return "", "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return "", "", fmt.Errorf("kube-controller-manager: %s: %s: %w", response.Status, body, err)
	}
	source := w.collector.Show()
	source.ReadAccess = debug.AllowAll
	recorder := httptest.NewRecorder()
	debug.Handlers(source)[builtInGraphPath].ServeHTTP(recorder, httptest.NewRequestWithContext(w.Context(), http.MethodGet, path, nil))
	for _, header := range []string{"Content-Type", "X-Content-Type-Options"} {
		if theirs, own := response.Header.Get(header), recorder.Header().Get(header); theirs != own {
			return "", "", fmt.Errorf("%s is %q in kube-controller-manager's graph and %q in Gleaner's", header, theirs, own)
		}
	}
	return string(body), recorder.Body.String(), nil
}

// createObjects creates objects in all states that a graph shows.
func (w *env) createObjects() []*unstructured.Unstructured {
	w.Helper()
	w.createDatabaseCRD()
	role := w.apply(`{kind: ClusterRole, metadata: {name: NS}}`)
	root := w.createDatabase("root", "{}", role)
	middle := w.createObject("Secret", "middle", nil, root, role)
	leaf := w.createConfigMap("leaf", middle)
	alone := w.createConfigMap("alone")

	waiting := w.createConfigMap("waiting")
	slow := w.createConfigMap("slow", waiting)
	w.patch(slow, `{"metadata": {"finalizers": ["test.gleaner.dev/slow"], "ownerReferences": [{"apiVersion": "v1",
		"kind": "ConfigMap", "name": "waiting", "uid": "`+string(waiting.GetUID())+`", "blockOwnerDeletion": true}]}}`)
	w.deleteWithPolicy(waiting, metav1.DeletePropagationForeground)

	gone := w.createConfigMap("gone")
	left := w.createConfigMap("left", gone)
	w.patch(left, `{"metadata": {"finalizers": ["test.gleaner.dev/slow"]}}`)
	w.delete(gone)
	for _, o := range []*unstructured.Unstructured{slow, left} {
		w.eventually(func() error {
			if w.get(o).GetDeletionTimestamp() == nil {
				return errorf("%s is not being deleted", o.GetName())
			}
			return nil
		})
	}
	return []*unstructured.Unstructured{root, middle, leaf, alone, waiting, left}
}

// Compared byte for byte, so that a tool can read either.
func TestG76_Graph_EqualsThatOfKubeControllerManager(t *testing.T) {
	w := newEnv(t)
	uids := []string{"nowhere"}
	for _, o := range w.createObjects() {
		uids = append(uids, string(o.GetUID()))
	}
	var graph string
	w.eventually(func() error {
		theirs, own, err := w.bothGraphs(uids)
		if err == nil && (theirs != own || strings.Count(own, "->") != 6) {
			err = errorf("%s\n%s", own, cmp.Diff(theirs, own))
		}
		graph = own
		return err
	})
	for _, part := range []string{`group="` + w.ns + `.example.com"`, `deletingDependents="true"`, `missing="true"`} {
		if !strings.Contains(graph, part) {
			t.Errorf("the graph has no %s:\n%s", part, graph)
		}
	}
}
