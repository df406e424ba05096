package finalize

import (
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// TestRequested_OrphanComesFirst: an object may have both finalizers, and what the collector
// does then is to orphan.
func TestRequested_OrphanComesFirst(t *testing.T) {
	for want, o := range map[hostabi.Requested]graph.Object{
		hostabi.RequestedOrphan:      {Orphan: true, Foreground: true},
		hostabi.RequestedForeground:  {Foreground: true},
		hostabi.RequestedUnspecified: {},
	} {
		if got := requested(&visitor{track: track{object: o}}); got != want {
			t.Errorf("%+v: got %s, want %s", o, got, want)
		}
	}
}
