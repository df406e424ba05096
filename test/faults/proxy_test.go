package faults

import (
	"fmt"
	"testing"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/test/proxy"
)

// faultProxy is the proxy between the collector and the API server. Faults end
// with the test that set them.
type faultProxy struct{ *proxy.Proxy }

func startProxy(cluster *devcluster.Cluster) (*faultProxy, error) {
	p, err := proxy.Start(cluster)
	return &faultProxy{p}, err
}

type (
	call         = proxy.Call
	faultHandler = proxy.FaultHandler
)

// Faults and matchers, see package proxy.
var (
	inNamespace = proxy.InNamespace
	forObject   = proxy.ForObject
	forGroup    = proxy.ForGroup
	oneIn       = proxy.OneIn

	page              = proxy.Page
	respondStatus     = proxy.RespondStatus
	tooManyRequests   = proxy.TooManyRequests
	slow              = proxy.Slow
	droppedConnection = proxy.DroppedConnection
	lostResponse      = proxy.LostResponse
	truncatedResponse = proxy.TruncatedResponse

	conflict       = proxy.Conflict
	internalError  = proxy.InternalError
	unavailable    = proxy.Unavailable
	expired        = proxy.Expired
	expiredInWatch = proxy.ExpiredInWatch
	truncatedWatch = proxy.TruncatedWatch
)

// fault is a fault set by a test.
type fault struct{ *proxy.Fault }

// fail makes the next matching calls fail: so many, or, if times is negative, all until
// the fault is lifted.
func (g *faultProxy) fail(t testing.TB, times int, matches func(call) bool, happen faultHandler) *fault {
	f := &fault{g.Fail(times, matches, happen)}
	t.Cleanup(f.Lift)
	return f
}

// waitForCount waits until a fault has occurred this number of times.
func (f *fault) waitForCount(t testing.TB, times int) {
	t.Helper()
	eventually(t, func() error {
		if n := f.Count(); n < times {
			return fmt.Errorf("fault occurred %d times, want %d", n, times)
		}
		return nil
	})
}
