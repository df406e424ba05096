package faults

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/test/inprocess"
)

// An API server that has just been started does not serve custom resources for a
// moment, and they are missing in its discovery. This does not prove that there are no policies.
func TestKeptObject_IsKept_WhilePoliciesAreNotServed(t *testing.T) {
	t.Parallel()
	s := newTestbed(t, devcluster.Options{})
	if err := inprocess.CreateCRDs(t, s.admin); err != nil {
		t.Fatal(err)
	}
	w := newEnvOn(t, s)
	policies := w.objects.Resource(v1alpha1.GroupVersion.WithResource("clustergcpolicies"))
	policy := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": v1alpha1.GroupVersion.String(), "kind": "ClusterGCPolicy", "metadata": map[string]any{"name": "waits"},
		"spec": map[string]any{
			"mode": "Enforce", "fixed": map[string]any{"collect": map[string]any{"decision": "Wait", "after": "1h"}},
			"resources":      []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}}},
			"objectSelector": map[string]any{"matchLabels": map[string]any{"waits": "true"}},
		},
	}}
	if _, err := policies.Create(t.Context(), policy, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	waits := func(name string) *unstructured.Unstructured {
		owner := w.create(objectSpec{name: "owner-of-" + name})
		o := w.create(objectSpec{name: name, owners: ownerRefs(owner)})
		w.patch(o, map[string]any{"labels": map[string]any{"waits": "true"}})
		w.delete(owner, background)
		return o
	}
	eventually(t, func() error {
		live, err := policies.Get(t.Context(), "waits", metav1.GetOptions{})
		if err != nil {
			return err
		}
		conditions, _, _ := unstructured.NestedSlice(live.Object, "status", "conditions")
		for _, c := range conditions {
			if c := c.(map[string]any); c["type"] == "Enforcing" && c["status"] == "True" {
				return nil
			}
		}
		return fmt.Errorf("policy is not in force: %v", conditions)
	})
	before := waits("before")
	w.waitForKept(before, "PolicyWaiting")

	group := v1alpha1.GroupVersion.Group
	hidden := s.proxy.fail(t, -1, func(c call) bool { return c.URL.Path == "/apis" }, withoutGroup(group))
	lost := s.proxy.fail(t, -1, forGroup(group), page(http.StatusNotFound, "text/plain", "404 page not found"))
	w.createType(newType()) // triggers discovery
	hidden.waitForCount(t, 1)
	w.expectKept(before)
	during := waits("during")
	w.expectKept(before, during)
	lost.Lift()
	hidden.Lift()
	w.waitForKept(during, "PolicyWaiting")
	w.expectKept(before, during)
	if err := policies.Delete(t.Context(), "waits", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	w.waitForDeletion(before, during)
}

// withoutGroup removes a group from discovery responses.
func withoutGroup(group string) faultHandler {
	return func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
		r.Header.Del("Accept-Encoding")
		answer := httptest.NewRecorder()
		pass.ServeHTTP(answer, r)
		maps.Copy(w.Header(), answer.Header())
		var list map[string]any
		if json.Unmarshal(answer.Body.Bytes(), &list) != nil {
			http.Error(w, "response is not JSON", http.StatusInternalServerError)
			return
		}
		for _, field := range []string{"groups", "items"} { // of APIGroupList and APIGroupDiscoveryList
			all, _ := list[field].([]any)
			list[field] = slices.DeleteFunc(all, func(entry any) bool {
				o := unstructured.Unstructured{Object: entry.(map[string]any)}
				return o.GetName() == group || o.Object["name"] == group
			})
		}
		var body bytes.Buffer
		_ = json.NewEncoder(&body).Encode(list) // of JSON
		w.Header().Set("Content-Length", strconv.Itoa(body.Len()))
		w.WriteHeader(answer.Code)
		_, _ = w.Write(body.Bytes())
	}
}
