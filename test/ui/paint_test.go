package ui

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/internal/cli/ownership"
	"github.com/gleaner-dev/gleaner/test/browse"
)

// BenchmarkFirstPaint measures the time from a request for the graph of objects that were read before until the browser paints
// something, and the size of the page.
func BenchmarkFirstPaint(b *testing.B) {
	for _, n := range []int{100, 5000, 50_000} {
		for name, query := range map[string]string{"folded": "", "one by one": "?fold=no"} {
			b.Run(fmt.Sprintf("%d objects, %s", n, name), func(b *testing.B) {
				w := &world{}
				w.deployments(n/10, 8)
				o, at, err := w.graph(b.Context(), "", "")
				if err != nil {
					b.Fatal(err)
				}
				sources := w.sources("")
				sources.Graph = func(context.Context, string, string) (*ownership.Ownership, time.Time, error) { return o, at, nil }
				address, _ := serve(b, sources)
				started, err := browse.Start(b.Context())
				browse.Require(b, err)
				defer started.Close()
				page := started.For(b)
				var paint, size float64
				for b.Loop() {
					page.Open(address + "/graph" + query)
					var measured struct{ Paint, Size float64 }
					page.Evaluate(`new Promise(done => new PerformanceObserver(list => done({Paint: list.getEntries()[0].startTime,
						Size: performance.getEntriesByType('navigation')[0].decodedBodySize})).observe({type: 'paint', buffered: true}))`, &measured)
					paint += measured.Paint
					size = measured.Size
				}
				b.ReportMetric(paint/float64(b.N), "paint-ms/op")
				b.ReportMetric(size, "page-bytes")
			})
		}
	}
}
