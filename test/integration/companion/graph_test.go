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

// theirGraph is where kube-controller-manager serves its graph.
const theirGraph = "/debug/controllers/garbage-collector-controller/graph"

// graphs returns both collectors' graphs of what some objects are connected to, as tools
// read them.
func (w *world) graphs(uids []string) (theirs, ours string, err error) {
	path := theirGraph + "?" + url.Values{"uid": uids}.Encode()
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
	source.Sight = debug.Everything
	recorder := httptest.NewRecorder()
	debug.Handlers(source)[theirGraph].ServeHTTP(recorder, httptest.NewRequestWithContext(w.Context(), http.MethodGet, path, nil))
	for _, header := range []string{"Content-Type", "X-Content-Type-Options"} {
		if theirs, ours := response.Header.Get(header), recorder.Header().Get(header); theirs != ours {
			return "", "", fmt.Errorf("%s is %q, and ours %q", header, theirs, ours)
		}
	}
	return string(body), recorder.Body.String(), nil
}

// family makes objects in all the states that a graph shows.
func (w *world) family() []*unstructured.Unstructured {
	w.Helper()
	w.define()
	role := w.apply(`{kind: ClusterRole, metadata: {name: NS}}`)
	root := w.database("root", "{}", role)
	middle := w.object("Secret", "middle", nil, root, role)
	leaf := w.make("leaf", middle)
	alone := w.make("alone")

	waiting := w.make("waiting")
	slow := w.make("slow", waiting)
	w.patch(slow, `{"metadata": {"finalizers": ["test.gleaner.dev/slow"], "ownerReferences": [{"apiVersion": "v1",
		"kind": "ConfigMap", "name": "waiting", "uid": "`+string(waiting.GetUID())+`", "blockOwnerDeletion": true}]}}`)
	w.deleteBy(waiting, metav1.DeletePropagationForeground)

	gone := w.make("gone")
	left := w.make("left", gone)
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

// Byte by byte, so that a tool which reads the one reads the other.
func TestG76_TheGraphIsThatOfKubeControllerManagerForTheSameObjects(t *testing.T) {
	w := newWorld(t)
	uids := []string{"nowhere"}
	for _, o := range w.family() {
		uids = append(uids, string(o.GetUID()))
	}
	var graph string
	w.eventually(func() error {
		theirs, ours, err := w.graphs(uids)
		if err == nil && (theirs != ours || strings.Count(ours, "->") != 6) {
			err = errorf("%s\n%s", ours, cmp.Diff(theirs, ours))
		}
		graph = ours
		return err
	})
	for _, part := range []string{`group="` + w.ns + `.example.com"`, `deletingDependents="true"`, `missing="true"`} {
		if !strings.Contains(graph, part) {
			t.Errorf("the graph has no %s:\n%s", part, graph)
		}
	}
}
