package debug

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	authorizationv1 "k8s.io/api/authorization/v1"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

const compatible = "/debug/controllers/garbagecollector/graph"

func TestCompatibleGraph_MatchesKubeControllerManager(t *testing.T) {
	for name, objects := range map[string][]graph.Object{"empty": nil, "simple": append(family(), object(configMap, "lost", "6", owner(configMap, "nowhere", "7")))} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join("testdata", "compatible-"+name+".dot")
			var bodies []string
			for _, path := range compatiblePaths {
				w := get(t, source(objects...), path, "Accept", "application/json")
				header := map[string]string{"type": w.Header().Get("Content-Type"), "sniff": w.Header().Get("X-Content-Type-Options")}
				if diff := cmp.Diff(map[string]string{"type": "text/vnd.graphviz", "sniff": "nosniff"}, header); diff != "" {
					t.Error(diff)
				}
				bodies = append(bodies, w.Body.String())
			}
			if *rewrite {
				if err := os.WriteFile(file, []byte(bodies[0]), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{string(want), string(want)}, bodies); diff != "" {
				t.Error(diff)
			}
		})
	}
}

const emptyDOT = "strict digraph full {\n}\n"

func TestCompatibleGraph_EmptyForUIDs(t *testing.T) {
	for claim, uid := range map[string]string{"unknown": "77", "of an object without owners and dependents": "5"} {
		t.Run(claim, func(t *testing.T) {
			w := get(t, source(family()...), compatible+"?uid="+uid)
			if w.Code != http.StatusOK || w.Body.String() != emptyDOT {
				t.Errorf("status %d: %s", w.Code, w.Body)
			}
		})
	}
}

func TestCompatibleGraph_ShowsObjectsTheClientMayGet(t *testing.T) {
	maySee := false
	c := &fakeCluster{users: map[string]string{"good": "alice"}, allows: func(s authorizationv1.SubjectAccessReviewSpec) bool {
		return isPath(s) || maySee && s.ResourceAttributes.Resource == "configmaps"
	}}
	w := getWithToken(t, guarded(t, c, source(family()...)), compatible+"?uid=3", "good")
	if w.Code != http.StatusOK || w.Body.String() != emptyDOT {
		t.Errorf("without access to objects: %d: %s", w.Code, w.Body)
	}
	if w := getWithToken(t, guarded(t, c, source(family()...)), compatible, ""); w.Code != http.StatusUnauthorized {
		t.Errorf("without a token: %d: %s", w.Code, w.Body)
	}
	maySee = true
	body := getWithToken(t, guarded(t, c, source(family()...)), compatible+"?uid=3", "good").Body.String()
	if !strings.Contains(body, `name="settings"`) || strings.Contains(body, `name="web"`) || strings.Contains(body, "->") {
		t.Errorf("with access to ConfigMaps: %s", body)
	}
}

func TestCompatibleGraph_RequiresAccessToItsPath(t *testing.T) {
	c := &fakeCluster{users: map[string]string{"good": "alice"}, allows: func(s authorizationv1.SubjectAccessReviewSpec) bool {
		return isPath(s) && s.NonResourceAttributes.Path == "/debug/gc/graph"
	}}
	h := guarded(t, c, source(family()...))
	for _, path := range compatiblePaths {
		if w := getWithToken(t, h, path, "good"); w.Code != http.StatusForbidden {
			t.Errorf("%s: %d: %s", path, w.Code, w.Body)
		}
	}
}
