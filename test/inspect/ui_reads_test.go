package inspect

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/test/proxy"
)

// reads records the requests that reach the API server, except for discovery.
type reads struct {
	mu   sync.Mutex
	seen sets.Set[string] // such as "list pods, metadata"
}

func (r *reads) add(c proxy.Call) bool {
	if !c.IsResourceRequest {
		return false
	}
	text := c.Verb + " " + c.Resource
	if c.Subresource != "" {
		text += "/" + c.Subresource
	}
	switch {
	case c.APIGroup == v1alpha1.GroupVersion.Group:
		text = c.Verb + " of Gleaner's"
	case strings.Contains(c.Header.Get("Accept"), "as=PartialObjectMetadata"):
		text = c.Verb + " of metadata"
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen.Insert(text)
	return false // it has no fault
}

// take returns what was read since the last call.
func (r *reads) take() sets.Set[string] {
	r.mu.Lock()
	defer r.mu.Unlock()
	seen := r.seen
	r.seen = sets.New[string]()
	return seen
}

// A page reads what it shows, once it is opened. Of the objects in the cluster that is their metadata, but for what it shows more of.
func TestUI_ReadsOnlyWhatPagesShow(t *testing.T) {
	s := sharedTestbed(t)
	b := window(t)
	p, err := proxy.Start(s.cluster)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	recorded := &reads{}
	recorded.take()
	p.Fail(-1, recorded.add, nil)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := p.WriteKubeconfig(path); err != nil {
		t.Fatal(err)
	}
	s.kubectl(t, "create", "configmap", "read", "-n", "default")
	t.Cleanup(func() {
		_, _ = s.cluster.Kubectl(context.WithoutCancel(t.Context()), "delete", "configmap", "read", "-n", "default")
	})
	address := s.startUI(t, "--open=false", "--kubeconfig="+path, "--operator-namespace="+namespace)
	base, _, _ := strings.Cut(address, "/open")
	if got := recorded.take().Delete("create selfsubjectreviews"); got.Len() != 0 { // are its credentials valid?
		t.Errorf("before a page was opened: %s", sets.List(got))
	}
	b.Open(address)
	// Namespaces are those to select from, Gleaner's resources say which objects are held, and the APIService of a type who serves it.
	about := []string{"list of metadata", "get of metadata", "list of Gleaner's", "list namespaces", "list apiservices"}
	for _, c := range []struct {
		path, wait string
		may, must  []string
	}{
		{"/policies", "Policies and finalizers", []string{"list of Gleaner's"}, []string{"list of Gleaner's"}},
		{"/graph?namespace=default", "Owners and dependents", about, []string{"list of metadata"}},
		{"/stuck", "Stuck objects", about, []string{"list of metadata"}},
		{"/object?kind=ConfigMap&namespace=default&name=read", "ConfigMap", append([]string{"get configmaps", "list events", "list pods", "create pods/portforward", "get pods/portforward"}, about...), []string{"get configmaps"}},
		{"/policies", "Policies and finalizers", []string{"list of Gleaner's"}, nil}, // once more: nothing goes on that an earlier page began
	} {
		recorded.take()
		b.Open(base + c.path)
		b.Wait("main", c.wait)
		got := recorded.take()
		if more := got.Difference(sets.New(c.may...)); more.Len() != 0 {
			t.Errorf("%s reads %q", c.path, sets.List(more))
		}
		if !got.HasAll(c.must...) {
			t.Errorf("%s reads %s", c.path, fmt.Sprint(sets.List(got)))
		}
	}
}
