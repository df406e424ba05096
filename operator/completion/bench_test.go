package completion_test

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/completion"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// BenchmarkCascade has the events of a cascade of 10,000 objects applied to the graph: alone, and with a Tracker that
// follows it. The difference is the cost of tracking.
func BenchmarkCascade(b *testing.B) {
	const dependents = 10_000
	kind := schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}
	object := func(i int) graph.Object {
		return graph.Object{
			UID: types.UID(fmt.Sprintf("6f0b6c1e-0000-4000-8000-%012x", i)), Kind: kind, Namespace: "shop", Name: fmt.Sprintf("object-%d", i), ResourceVersion: fmt.Sprint(i + 1),
		}
	}
	events := []graph.Event{graph.Seen{Object: object(0)}}
	ends := []graph.Event{graph.Deleted{Object: object(0)}}
	for i := 1; i <= dependents; i++ {
		o := object(i)
		owner := object((i - 1) / 10)
		o.Owners = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}
		events, ends = append(events, graph.Seen{Object: o}), append(ends, graph.Deleted{Object: o})
	}
	for _, tracked := range []bool{false, true} {
		b.Run(fmt.Sprintf("tracked=%t", tracked), func(b *testing.B) {
			for range b.N {
				g, now := graph.New(), time.Unix(0, 0)
				var t completion.Tracker
				var dirty []graph.ID
				for _, all := range [][]graph.Event{events, ends} {
					for _, e := range all {
						if tracked {
							t.Observe(e, g, now)
						}
						dirty = g.Apply(e, dirty[:0])
					}
				}
				if done, _ := t.Check(g, now); tracked && len(done) != 1 {
					b.Fatalf("%d cascades have completed", len(done))
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(events)+len(ends)), "ns/event")
		})
	}
}
