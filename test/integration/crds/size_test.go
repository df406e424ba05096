package crds

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// Rules have a cost budget at run time: objects within the size limits must not exceed
// it, or the error would be about the budget.
func TestLargestResources_AreAccepted(t *testing.T) {
	rules := fill(32, func(i int) any {
		return map[string]any{"apiGroups": names(32, 253), "resources": names(64, 253)}
	})
	selector := map[string]any{"matchExpressions": fill(500, func(i int) any {
		return map[string]any{"key": fmt.Sprint("example.com/", i), "operator": "In", "values": names(3, 63)}
	})}
	for claim, c := range map[string]struct {
		kind kind
		spec map[string]any
	}{
		"fixed verdicts": {policy, map[string]any{
			"resources": rules, "objectSelector": selector,
			"fixed": map[string]any{"propagate": map[string]any{
				"decision": "Foreground", "reason": strings.Repeat("x", hostabi.MaxReasonBytes),
				"dependents": fill(hostabi.MaxDependents, func(i int) any {
					return map[string]any{"group": name(i, 253), "kind": name(i, 63), "decision": "Delete"}
				}),
			}},
		}},
		"retention": {clusterRetention, map[string]any{
			"resources": fill(20, func(i int) any { return map[string]any{"apiGroups": names(1, 253), "resources": names(1, 253)} }),
			"keepLast":  1, "objectSelector": selector, "namespaceSelector": selector, "finishedAt": strings.Repeat("x", 8192),
			"groupBy": map[string]any{"type": "Expression", "expression": strings.Repeat("x", 8192)},
			"matchConditions": fill(64, func(i int) any {
				return map[string]any{"name": name(i, 63), "expression": strings.Repeat("x", 8192)}
			}),
		}},
		"conditions": {clusterPolicy, map[string]any{
			"resources": rules[:1], "module": map[string]any{"name": name(0, 253)},
			"matchConditions": fill(64, func(i int) any {
				return map[string]any{"name": name(i, 63), "expression": strings.Repeat("x", 8192)}
			}),
		}},
		"grants": {clusterPolicy, map[string]any{
			"resources": rules[:1], "module": map[string]any{"name": name(0, 253)},
			"serviceAccount": map[string]any{"namespace": name(0, 63), "name": name(0, 253)},
			"grants": map[string]any{"read": fill(32, func(i int) any {
				return map[string]any{"apiGroups": names(32, 253), "resources": names(64, 253), "namespaces": names(64, 63)}
			})},
		}},
		"what a finalizer is for": {clusterFinalizer, clusterFinalizerWith(map[string]any{
			"resources": rules, "attach": true, "objectSelector": selector, "namespaceSelector": selector, "after": names(16, 63),
		})},
		"what a finalizer may write": {clusterFinalizer, clusterFinalizerWith(map[string]any{
			"grants": map[string]any{"write": fill(32, func(i int) any {
				return map[string]any{
					"apiGroups": names(32, 253), "resources": names(64, 253), "namespaces": names(64, 63),
					"verbs": []any{"create", "delete", "patch"},
				}
			})},
		})},
		"what a finalizer may send": {clusterFinalizer, clusterFinalizerWith(map[string]any{
			"grants": map[string]any{"http": fill(32, largestHTTP)},
		})},
		"finalizers to wait for": {finalizer, map[string]any{
			"resources": rules[:1], "module": map[string]any{"name": name(0, 253)},
			"after": fill(16, func(i int) any { return name(i, 249) + ".com/" + name(i, 63) }),
		}},
		"what is archived": {clusterArchive, map[string]any{
			"resources": rules, "objectSelector": selector, "namespaceSelector": selector,
			"recipients": fill(16, func(i int) any { return "age1pq1" + strings.Repeat("qpzry9x8gf2tvdw0"[i:]+"qpzry9x8gf2tvdw0"[:i], 122) }),
		}},
		"Rego": {clusterModule, map[string]any{
			"rego": map[string]any{"inline": strings.Repeat("x", 256<<10)},
		}},
		"an image": {module, map[string]any{
			"wasm": map[string]any{
				"image": "ghcr.io/" + strings.Repeat("a/", 200) + "policy:v1",
				"pullSecrets": fill(8, func(i int) any {
					return map[string]any{"name": name(i, 253)}
				}),
			},
		}},
		"an address": {module, map[string]any{
			"wasm": map[string]any{"url": "https://example.com/" + strings.Repeat("@", 2000)},
		}},
	} {
		t.Run(claim, func(t *testing.T) {
			if _, err := newAPI(t).dryRun(c.kind, c.spec); err != nil {
				t.Error(err)
			}
		})
	}
}

// clusterFinalizerWith adds the required fields of a ClusterFinalizer.
func clusterFinalizerWith(more map[string]any) map[string]any {
	spec := map[string]any{
		"finalizer": name(0, 249) + ".com/" + name(0, 63), "module": map[string]any{"name": name(0, 253)},
		"resources":      []any{map[string]any{"apiGroups": []any{""}, "resources": []any{"configmaps"}}},
		"serviceAccount": map[string]any{"namespace": name(0, 63), "name": name(0, 253)},
	}
	maps.Copy(spec, more)
	return spec
}

func largestHTTP(i int) any {
	secret := map[string]any{"namespace": name(0, 63), "name": name(0, 253), "key": name(0, 253)}
	return map[string]any{
		"url":     "https://example.com/" + strings.Repeat(fmt.Sprint("a", i%10, "/"), 600) + "*",
		"methods": []any{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"},
		"headersFrom": fill(16, func(i int) any {
			return map[string]any{"header": name(i, 127), "secretKeyRef": secret}
		}),
		"sigV4": map[string]any{
			"region": name(0, 63), "service": name(0, 63), "accessKeyID": secret, "secretAccessKey": secret, "sessionToken": secret,
		},
		"ca":        map[string]any{"secretKeyRef": secret},
		"addresses": fill(16, func(i int) any { return fmt.Sprintf("fd00:1111:1111:1111:1111:1111:1111:11%02x/128", i) }),
	}
}

func fill(n int, item func(int) any) []any {
	var list []any
	for i := range n {
		list = append(list, item(i))
	}
	return list
}

// name returns a name of this length, different for each number.
func name(i, length int) string {
	text := fmt.Sprint("n", i)
	return text + strings.Repeat("x", length-len(text))
}

func names(n, length int) []any {
	return fill(n, func(i int) any { return name(i, length) })
}
