package examples

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/policies/library"
)

// optionalTypes are the types that a control plane lacks initially, by the policies that
// govern them.
var optionalTypes = map[string]string{
	"keep-data-snapshots":       crd("snapshot.storage.k8s.io", "v1", "VolumeSnapshot", "volumesnapshots"),
	"foreground-front-gateways": crd("gateway.networking.k8s.io", "v1", "Gateway", "gateways"),
}

func crd(group, version, kind, plural string) string {
	return fmt.Sprintf(`apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: %[4]s.%[1]s
  annotations: {api-approved.kubernetes.io: unapproved}
spec:
  group: %[1]s
  scope: Namespaced
  names: {kind: %[3]s, listKind: %[3]sList, plural: %[4]s, singular: %[5]s}
  versions:
  - name: %[2]s
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
`, group, version, kind, plural, strings.ToLower(kind))
}

// conditions returns the conditions of a ClusterGCPolicy's current generation, as STATUS/REASON.
func (w *env) conditions(policy string) (map[string]string, error) {
	text, err := w.cluster.Kubectl(w.Context(), "get", "clustergcpolicy", policy, "-o", "json")
	if err != nil {
		return nil, err
	}
	var p struct {
		Metadata metav1.ObjectMeta
		Status   struct {
			ObservedGeneration int64
			Conditions         []metav1.Condition
		}
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		return nil, err
	}
	all := map[string]string{}
	for _, c := range p.Status.Conditions {
		if p.Status.ObservedGeneration == p.Metadata.Generation {
			all[c.Type] = fmt.Sprintf("%s/%s", c.Status, c.Reason)
		}
	}
	return all, nil
}

// waitForCondition waits until a ClusterGCPolicy is accepted with its module, and Enforcing has
// this status and reason.
func (w *env) waitForCondition(policy, enforcing string) {
	w.Helper()
	w.eventually(func() error {
		now, err := w.conditions(policy)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(now["Accepted"], "True/") || !strings.HasPrefix(now["ModuleReady"], "True/") || !strings.HasPrefix(now["Enforcing"], enforcing) {
			return fmt.Errorf("%s: want Enforcing to be %s: %v", policy, enforcing, now)
		}
		return nil
	})
}

// The commands of each README, on a control plane as of gleaner-dev dev, which initially serves no
// snapshots and no gateways.
func TestLibrary_PoliciesAreEnforced(t *testing.T) {
	all, err := library.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range all {
		t.Run(p.Name, func(t *testing.T) {
			w := &env{T: t, cluster: sharedCluster(t), dir: t.TempDir()}
			folder := filepath.Join("..", "..", "policies", "library", p.Name)
			w.kubectl("apply", "-k", folder)
			defer w.kubectl("delete", "-k", folder, "--wait=false")
			names := strings.Fields(w.kubectl("get", "-k", folder, "-o", `jsonpath={.items[?(@.kind=="ClusterGCPolicy")].metadata.name}`))
			if len(names) == 0 {
				t.Fatal("README has no policy")
			}
			for _, name := range names {
				w.waitForCondition(name, "False/")
			}
			w.kubectl("apply", "-k", filepath.Join("..", "..", "policies", "library", "enforce", p.Name))
			for _, name := range names {
				if definition, missing := optionalTypes[name]; missing {
					w.waitForCondition(name, "False/NotServed")
					file := filepath.Join(w.dir, "crd.yaml")
					if err := os.WriteFile(file, []byte(definition), 0o600); err != nil {
						t.Fatal(err)
					}
					w.kubectl("apply", "-f", file)
				}
				w.waitForCondition(name, "True/")
			}
		})
	}
}
