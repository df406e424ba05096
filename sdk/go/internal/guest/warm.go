package guest

import (
	"encoding/json"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// warm decodes and encodes one document of each kind. encoding/json analyzes a type
// on first use. A module starts from the state after its initialization for each
// request, so this analysis is done only once.
func warm() error {
	now := time.Unix(0, 0).UTC()
	yes := true
	object := hostabi.Object{APIVersion: "v1", Kind: "ConfigMap", Metadata: hostabi.Metadata{
		Name: "a", CreationTimestamp: &now, DeletionTimestamp: &now,
		Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"a": "b"}, Finalizers: []string{"a"},
		OwnerReferences: []hostabi.Reference{{Name: "a", Controller: &yes, BlockOwnerDeletion: &yes}},
	}}
	document, err := hostabi.MarshalRequest(hostabi.Request{
		Hook: hostabi.HookCollect, Object: object, OwnersAbsentSince: &now, Time: now, State: json.RawMessage(`{"a":1}`),
		Policy:     hostabi.Policy{Name: "a", Settings: json.RawMessage(`{"a":1}`)},
		Owners:     []hostabi.Owner{{Reference: hostabi.Reference{Name: "a"}, Status: hostabi.OwnerAbsent}},
		Dependents: hostabi.Dependents{Count: 1, ByKind: []hostabi.KindCount{{Kind: "a", Count: 1}}},
		Results: map[string]hostabi.Result{"a": {
			Object: &object, List: &hostabi.ListResult{Items: []hostabi.Object{object}},
			HTTP: &hostabi.HTTPResult{Headers: map[string]string{"a": "b"}}, Error: &hostabi.ResultError{Reason: hostabi.ErrorNotFound},
		}},
		Withheld: []string{"object"},
	})
	if err != nil {
		return err
	}
	return Serve(warmupHost{document}, func(r hostabi.Request) (hostabi.Verdict, error) {
		return hostabi.Verdict{
			Decision: hostabi.DecisionAct, Propagation: hostabi.PropagationBackground, Delay: 1, After: 1, State: r.State, Reason: "a",
			Dependents: []hostabi.DependentDecision{{Kind: "a", Decision: hostabi.DecisionOrphan}},
			Intents:    []hostabi.Intent{{ID: "a", Get: &hostabi.GetIntent{Target: hostabi.Target{Name: "a"}}}},
		}, nil
	})
}

// warmupHost is a host for warm.
type warmupHost struct{ request []byte }

// ReadRequest implements Host.
func (r warmupHost) ReadRequest(into []byte) int { return copy(into, r.request) }

// WriteVerdict implements Host.
func (warmupHost) WriteVerdict([]byte) {}

// Log implements Host.
func (warmupHost) Log(hostabi.LogLevel, string) {}
