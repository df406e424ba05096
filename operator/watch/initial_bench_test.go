package watch

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// BenchmarkInitialList measures the first list of a type with many objects, each with 1 KiB of
// annotations, as an API server streams it: the live heap at its end, the highest size of the
// heap until then, and what is allocated for each object.
func BenchmarkInitialList(b *testing.B) {
	for _, many := range []int{100_000, 1_000_000} {
		b.Run(strconv.Itoa(many), func(b *testing.B) {
			if many > 100_000 && testing.Short() {
				b.Skip("in short mode")
			}
			for b.Loop() {
				measureInitialList(b, many)
			}
		})
	}
}

func measureInitialList(b *testing.B, many int) {
	server := newStreamingServer(b, many)
	defer server.Close()
	config := &rest.Config{Host: server.URL, QPS: -1}
	found, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		b.Fatal(err)
	}
	sink := &lockedGraph{graph: graph.New()}
	before, allocated := heapSize(), allocatedBytes()
	peak := watchPeak()
	w := New(Options{Discovery: found, Metadata: objects, Sink: sink, Log: logr.Discard(), Interval: time.Hour})
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() { ended <- w.Run(ctx) }()
	for !w.Synced() {
		time.Sleep(time.Millisecond)
	}
	allocated = allocatedBytes() - allocated
	highest := peak()
	live := heapSize() - before
	if n := sink.graph.Stats().Seen; n != many {
		b.Errorf("%d objects were seen, want %d", n, many)
	}
	cancel()
	if err := <-ended; err != nil {
		b.Error(err)
	}
	runtime.KeepAlive(sink)
	b.ReportMetric(float64(live)/(1<<20), "live-MiB")
	b.ReportMetric(float64(highest-before)/(1<<20), "peak-MiB")
	b.ReportMetric(float64(highest-before)/float64(live), "peak/live")
	b.ReportMetric(float64(allocated)/float64(many), "B/object")
}

// lockedGraph is a Sink with a graph.
type lockedGraph struct {
	mu    sync.Mutex
	graph *graph.Graph
	dirty []graph.ID
}

func (l *lockedGraph) Apply(events ...graph.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, e := range events {
		l.dirty = l.graph.Apply(e, l.dirty[:0])
	}
}

func heapSize() uint64 {
	runtime.GC()
	runtime.GC() // frees objects with finalizers
	return readMetric("/memory/classes/heap/objects:bytes")
}

func allocatedBytes() uint64 { return readMetric("/gc/heap/allocs:bytes") }

func readMetric(name string) uint64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}

// watchPeak reads the size of the heap every millisecond, until its result is called, which
// returns the highest.
func watchPeak() func() uint64 {
	done, highest := make(chan struct{}), make(chan uint64)
	go func() {
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for most := uint64(0); ; {
			select {
			case <-tick.C:
				most = max(most, readMetric("/memory/classes/heap/objects:bytes"))
			case <-done:
				highest <- most
				return
			}
		}
	}()
	return func() uint64 {
		close(done)
		return <-highest
	}
}

// newStreamingServer returns an API server that streams a list of ConfigMaps in protobuf. It
// allocates nothing for an object, so that the heap is that of the client.
func newStreamingServer(b *testing.B, many int) *httptest.Server {
	b.Helper()
	resources := metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{resourceOf("configmaps", "ConfigMap")}}
	item, end := protobufEvent(b, "ADDED", sampleObject()), protobufEvent(b, "BOOKMARK", initialEventsEnd(many))
	return httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/api":
			reply(w, metav1.APIVersions{Versions: []string{"v1"}})
		case "/apis":
			reply(w, metav1.APIGroupList{})
		case "/api/v1":
			reply(w, resources)
		default:
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
			out := bufio.NewWriterSize(w, 64<<10)
			frame := bytes.Clone(item)
			uid, version, name := bytes.Index(frame, []byte(sampleUID)), bytes.Index(frame, []byte(sampleVersion)), bytes.Index(frame, []byte(sampleName))
			var serial [8]byte
			var digits [20]byte
			for i := range many {
				binary.BigEndian.PutUint64(serial[:], uint64(i))
				hex.Encode(frame[uid:], serial[:4])
				hex.Encode(frame[uid+24:], serial[2:])
				copy(frame[version:], strconv.AppendUint(digits[:0], uint64(10_000_000+i), 10))
				copy(frame[name:], strconv.AppendUint(digits[:0], uint64(10_000_000+i), 10))
				_, _ = out.Write(frame)
			}
			_, _ = out.Write(end)
			_ = out.Flush()
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
		}
	}))
}

const (
	sampleUID     = "00000000-1111-4222-8333-444444444444"
	sampleVersion = "55555555"
	sampleName    = "66666666"
)

func sampleObject() *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: "bench", Name: sampleName + "-object", UID: sampleUID, ResourceVersion: sampleVersion,
		CreationTimestamp: metav1.Unix(1_700_000_000, 0),
		Annotations:       map[string]string{"padding": strings.Repeat("x", 1024)},
		ManagedFields: []metav1.ManagedFieldsEntry{{
			Manager: "bench", Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{".":{},"f:padding":{}}}}`),
		}},
	}}
}

func initialEventsEnd(many int) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: fmt.Sprint(10_000_000 + many),
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
}

// protobufEvent encodes a watch event with its length.
func protobufEvent(b *testing.B, kind string, o *metav1.PartialObjectMetadata) []byte {
	b.Helper()
	info, ok := k8sruntime.SerializerInfoForMediaType(metainternal.Codecs.SupportedMediaTypes(), k8sruntime.ContentTypeProtobuf)
	if !ok {
		b.Fatal("no serializer for protobuf")
	}
	version := schema.GroupVersion{Group: "meta.k8s.io", Version: "v1"}
	o.SetGroupVersionKind(version.WithKind("PartialObjectMetadata"))
	raw, err := k8sruntime.Encode(metainternal.Codecs.WithoutConversion().EncoderForVersion(info.Serializer, version), o)
	if err != nil {
		b.Fatal(err)
	}
	e := metav1.WatchEvent{Type: kind, Object: k8sruntime.RawExtension{Raw: raw}}
	content, err := e.Marshal()
	if err != nil {
		b.Fatal(err)
	}
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(content))), content...)
}
