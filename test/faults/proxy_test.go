package faults

import (
	"fmt"
	"net"
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/test/proxy"
)

// gate is the proxy between the collector and the API server, whose faults end
// with the test that they are of.
type gate struct{ *proxy.Proxy }

func startProxy(cluster *devcluster.Cluster) (*gate, error) {
	p, err := proxy.Start(cluster)
	return &gate{p}, err
}

type (
	call      = proxy.Call
	happening = proxy.Happening
)

// What may happen to a request, and to which.
var (
	in        = proxy.In
	about     = proxy.About
	ofGroup   = proxy.OfGroup
	sometimes = proxy.Sometimes

	page       = proxy.Page
	says       = proxy.Says
	busy       = proxy.Busy
	slow       = proxy.Slow
	dropped    = proxy.Dropped
	unanswered = proxy.Unanswered
	cutOff     = proxy.CutOff

	conflict      = proxy.Conflict
	broken        = proxy.Broken
	unavailable   = proxy.Unavailable
	expired       = proxy.Expired
	expiredWithin = proxy.ExpiredWithin
	brokenWithin  = proxy.BrokenWithin
)

// fault is a fault of a test's own.
type fault struct{ *proxy.Fault }

// fails has something happen to the calls that match, so many times, or until it is
// lifted if that is below 0.
func (g *gate) fails(t testing.TB, times int, matches func(call) bool, happen happening) *fault {
	f := &fault{g.Fail(times, matches, happen)}
	t.Cleanup(f.Lift)
	return f
}

// happened waits until a fault has happened so many times.
func (f *fault) happened(t testing.TB, times int) {
	t.Helper()
	eventually(t, func() error {
		if n := f.Count(); n < times {
			return fmt.Errorf("the fault has happened %d times, not %d", n, times)
		}
		return nil
	})
}

// freeAddress returns an address on loopback that nobody listens on.
func freeAddress(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
