package ui

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func resources(text string) (all []*unstructured.Unstructured) {
	condition := func(kind, status, reason string) any {
		return map[string]any{"type": kind, "status": status, "reason": reason, "message": reason + " because " + text, "lastTransitionTime": now.Format(time.RFC3339)}
	}
	for _, o := range []map[string]any{
		{"kind": "GCPolicy", "metadata": map[string]any{"name": "keep", "namespace": "shop", "uid": "keep"}, "spec": map[string]any{"mode": "Enforce", "resources": []any{map[string]any{"apiGroups": []any{"apps"}, "resources": []any{"deployments"}}}},
			"status": map[string]any{"conditions": []any{condition("Accepted", "True", "Accepted"), condition("ModuleReady", "False", "Faulty")}}},
		{"kind": "ClusterFinalizer", "metadata": map[string]any{"name": "bucket"}, "status": map[string]any{"conditions": []any{condition("Accepted", "True", "Accepted")}, "pending": int64(3)}},
		{"kind": "RetentionPolicy", "metadata": map[string]any{"name": "old", "namespace": "shop"}, "spec": map[string]any{"mode": "Monitor"}, "status": map[string]any{
			"conditions": []any{condition("Enforcing", "Unknown", "Listing")}, "selected": int64(12), "lastFailure": text,
			"nextRemovals": []any{map[string]any{"name": "job-1", "namespace": "shop", "time": now.Format(time.RFC3339), "reason": "MaxAge"}},
		}},
	} {
		o["apiVersion"] = "gleaner.dev/v1alpha1"
		all = append(all, &unstructured.Unstructured{Object: o})
	}
	return all
}
