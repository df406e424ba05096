package modulecall_test

import (
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
)

// An object may have both finalizers; the garbage collector then orphans its dependents
//
func TestRequestedPropagation_OrphanTakesPrecedence(t *testing.T) {
	for want, o := range map[hostabi.RequestedPropagation]graph.Object{
		hostabi.RequestedOrphan:      {Orphan: true, Foreground: true},
		hostabi.RequestedForeground:  {Foreground: true},
		hostabi.RequestedUnspecified: {},
	} {
		if got := modulecall.RequestedPropagation(o); got != want {
			t.Errorf("%+v: got %s, want %s", o, got, want)
		}
	}
}
