package guest

import "github.com/gleaner-dev/gleaner/hostabi"

// firstRequest has one field of each type.
const firstRequest = `{"hook": "collect", "policy": {"name": "a", "settings": {"a": 1}},
"object": {"kind": "ConfigMap", "metadata": {"name": "a", "creationTimestamp": "1970-01-01T00:00:00Z",
"labels": {"a": "b"}, "ownerReferences": [{"name": "a", "controller": true}], "finalizers": ["a"]}},
"owners": [{"reference": {"name": "a"}, "status": "Absent"}], "dependents": {"count": 1, "byKind": [{"kind": "a", "count": 1}]},
"time": "1970-01-01T00:00:00Z", "attempt": 1, "state": {"a": 1}, "withheld": ["object"],
"results": {"a": {"list": {"items": [{"kind": "a"}]}, "http": {"headers": {"a": "b"}}, "error": {"reason": "NotFound"}}}}`

// warm does once what would otherwise be done in each call, since each begins with the state
// after the module's initialization.
func warm() error {
	warmRuntime()
	return Serve(warmupHost{}, func(r hostabi.Request) (hostabi.Verdict, error) {
		return hostabi.Verdict{
			Decision: hostabi.DecisionAct, After: 1, State: r.State, Reason: "a",
			Intents: []hostabi.Intent{{ID: "a", Get: &hostabi.GetIntent{Target: hostabi.Target{Name: "a"}}}},
		}, nil
	})
}

// warmupHost is a host for warm.
type warmupHost struct{}

// ReadRequest implements Host.
func (warmupHost) ReadRequest() []byte { return []byte(firstRequest) }

// WriteVerdict implements Host.
func (warmupHost) WriteVerdict([]byte) {}

// Log implements Host.
func (warmupHost) Log(hostabi.LogLevel, string) {}
