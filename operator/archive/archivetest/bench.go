package archivetest

import (
	"crypto/rand"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/archive"
)

// Bench measures how long it takes to put entries: 2,000 of 2 KiB, each in a call of its own, by
// 20 goroutines.
func Bench(b *testing.B, open func(b *testing.B) archive.Store) {
	const total, goroutines = 2000, 20
	for b.Loop() {
		b.StopTimer()
		s := open(b)
		entries := make([]archive.Entry, total)
		for i := range entries {
			entries[i] = EntryOf(b, i, rand.Text()+string(incompressible(950)), archive.Header{Cause: archive.Cause{Root: "root"}, Expires: start})
		}
		b.StartTimer()
		began := time.Now()
		var next atomic.Int64
		var all sync.WaitGroup
		for range goroutines {
			all.Go(func() {
				for i := next.Add(1) - 1; i < total; i = next.Add(1) - 1 {
					if err := s.Put(b.Context(), entries[i]); err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		b.ReportMetric(total/time.Since(began).Seconds(), "entries/s")
		b.ReportMetric(float64(entries[0].Size), "bytes/entry")
		b.StopTimer()
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
	}
}

// incompressible returns n random bytes as text, which is twice as long.
func incompressible(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.Read(data)
	return fmt.Appendf(nil, "%x", data)
}

// Typical returns an object of a kind as clusters have it: Deployment, ConfigMap or Pod.
func Typical(kind string) *unstructured.Unstructured {
	labels := map[string]any{"app.kubernetes.io/name": "web", "app.kubernetes.io/instance": "web-production", "app.kubernetes.io/managed-by": "Helm"}
	container := map[string]any{
		"name": "web", "image": "example.com/shop/web:v1.27.3", "imagePullPolicy": "IfNotPresent",
		"ports":                    []any{map[string]any{"name": "http", "containerPort": int64(8080), "protocol": "TCP"}},
		"env":                      []any{map[string]any{"name": "LOG_LEVEL", "value": "info"}, map[string]any{"name": "DATABASE", "valueFrom": map[string]any{"secretKeyRef": map[string]any{"name": "database", "key": "url"}}}},
		"resources":                map[string]any{"limits": map[string]any{"memory": "512Mi"}, "requests": map[string]any{"cpu": "100m", "memory": "256Mi"}},
		"readinessProbe":           map[string]any{"httpGet": map[string]any{"path": "/ready", "port": "http", "scheme": "HTTP"}, "timeoutSeconds": int64(1), "periodSeconds": int64(10), "successThreshold": int64(1), "failureThreshold": int64(3)},
		"terminationMessagePath":   "/dev/termination-log",
		"terminationMessagePolicy": "File",
		"volumeMounts":             []any{map[string]any{"name": "token", "readOnly": true, "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount"}},
	}
	podSpec := map[string]any{
		"containers": []any{container}, "restartPolicy": "Always", "terminationGracePeriodSeconds": int64(30), "dnsPolicy": "ClusterFirst",
		"serviceAccountName": "web", "securityContext": map[string]any{}, "schedulerName": "default-scheduler",
	}
	o := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
		"name": "web-7d4b9c6f8d-x2x7k", "namespace": "shop", "uid": "5f2b8f9e-3f43-4ad4-9d0e-2f0a3c1b7e55", "resourceVersion": "184467",
		"creationTimestamp": "2026-05-01T12:00:00Z", "labels": labels, "generation": int64(3),
	}}}
	o.SetKind(kind)
	switch kind {
	case "Deployment":
		o.SetAPIVersion("apps/v1")
		o.Object["spec"] = map[string]any{"replicas": int64(3), "selector": map[string]any{"matchLabels": labels}, "template": map[string]any{"metadata": map[string]any{"labels": labels}, "spec": podSpec}, "revisionHistoryLimit": int64(10)}
		o.Object["status"] = map[string]any{"replicas": int64(3), "readyReplicas": int64(3), "observedGeneration": int64(3), "conditions": []any{map[string]any{"type": "Available", "status": "True", "reason": "MinimumReplicasAvailable", "message": "Deployment has minimum availability."}}}
	case "Pod":
		o.SetAPIVersion("v1")
		o.Object["spec"] = podSpec
		o.Object["status"] = map[string]any{"phase": "Running", "podIP": "10.244.1.17", "hostIP": "192.0.2.10", "qosClass": "Burstable", "startTime": "2026-05-01T12:00:05Z",
			"containerStatuses": []any{map[string]any{"name": "web", "ready": true, "restartCount": int64(0), "image": "example.com/shop/web:v1.27.3", "imageID": "example.com/shop/web@sha256:9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"}}}
	default:
		o.SetAPIVersion("v1")
		o.Object["data"] = map[string]any{"application.yaml": "server:\n  port: 8080\n  timeout: 30s\ndatabase:\n  pool: 20\n  host: postgres.shop.svc\nfeatures:\n  checkout: true\n  search: true\n", "LOG_LEVEL": "info"}
	}
	return o
}

// BenchSize reports how many bytes are stored for each object of a kind. Size returns what the
// storage has.
func BenchSize(b *testing.B, kind string, open func(b *testing.B) archive.Store, size func(b *testing.B) int64) {
	const total = 2000
	for b.Loop() {
		s := open(b)
		plain := 0
		var body int64
		for i := 0; i < total; i += 20 {
			var batch []archive.Entry
			for j := range 20 {
				o := Typical(kind)
				o.SetName(fmt.Sprintf("web-%x", i+j))
				o.SetUID(types.UID(fmt.Sprintf("5f2b8f9e-3f43-4ad4-9d0e-%012x", (i+j)*7919)))
				e := EntryOfObject(b, i+j, o, archive.Header{
					Policies: []string{"ArchivePolicy shop/all"}, Expires: start.AddDate(0, 1, 0),
					Cause: archive.Cause{By: archive.ByGleaner, Reason: "AllOwnersDeleted", Root: "0d2b8f9e-3f43-4ad4-9d0e-2f0a3c1b7e55"},
				})
				text, err := o.MarshalJSON()
				if err != nil {
					b.Fatal(err)
				}
				plain, body = plain+len(text), body+e.Size
				batch = append(batch, e)
			}
			if err := s.Put(b.Context(), batch...); err != nil {
				b.Fatal(err)
			}
		}
		if err := s.Close(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(plain)/total, "JSON-bytes")
		b.ReportMetric(float64(body)/total, "body-bytes")
		b.ReportMetric(float64(size(b))/total, "stored-bytes")
	}
}
