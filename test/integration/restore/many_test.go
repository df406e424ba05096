package restore

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

func TestRestore_AThousandDependents(t *testing.T) {
	e := newEnv(t)
	owner := e.ConfigMap("owner")
	all := []*unstructured.Unstructured{owner}
	for i := range 1000 {
		all = append(all, e.ConfigMap(fmt.Sprintf("dependent-%04d", i), owner))
	}
	archived := e.store(archive.Cause{}, all...)
	e.Remove(archived[:1], archived...)
	began := time.Now()
	out := e.restore("configmap/owner", "-n", e.Namespace)
	t.Logf("1,001 objects were restored in %s", time.Since(began).Round(time.Millisecond))
	if !strings.Contains(out, "Restored 1001 objects (ConfigMap: 1001).") {
		t.Errorf("got\n%s", out[max(0, len(out)-1000):])
	}
	e.Compare(archived)
}
