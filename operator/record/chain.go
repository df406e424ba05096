package record

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/decide"
)

// maxChainLength is the maximum length of a chain. Only chains with a cycle reach it.
const maxChainLength = 16

// ExtendChain returns the entry with its chain continued from where it ends: each lost owner is
// followed to the entry that deleted it, as far as deletionOf knows that. It sets Root.
func (e Entry) ExtendChain(deletionOf func(types.UID) (Entry, bool)) Entry {
	chain := append([]Link(nil), e.Chain...) // that of a stored entry is shared
	if len(chain) == 0 {
		lost, ok := e.lostOwner()
		if !ok {
			return e
		}
		chain = append(chain, Link{Owner: lost})
	}
	for len(chain) <= maxChainLength {
		last := &chain[len(chain)-1]
		e.Root = rootOf(last.Owner, e.Root)
		deletion, ok := deletionOf(last.Owner.Object.UID)
		if !ok {
			break
		}
		last.DeletedReason = string(deletion.Reason)
		if deletion.Root != "" {
			e.Root = deletion.Root
		}
		lost, ok := deletion.lostOwner()
		if !ok || len(chain) == maxChainLength {
			break
		}
		chain = append(chain, Link{Owner: lost})
	}
	e.Chain = chain
	return e
}

// rootOf returns the UID of a lost owner. One that could not be read may still exist.
func rootOf(lost Owner, earlier types.UID) types.UID {
	switch lost.Status {
	case decide.Absent.String(), decide.Waiting.String(), decide.Orphaning.String():
		return lost.Object.UID
	default:
		return earlier
	}
}

// ChainEnds reports whether it is known why the chain does not continue: its last owner was not
// deleted by Gleaner, or for no owner. False: its last owner's deletion is to be looked up.
func (e Entry) ChainEnds() bool {
	n := len(e.Chain)
	return n == 0 || n >= maxChainLength || e.Chain[n-1].DeletedReason != ""
}

// lostOwner returns the first owner that the decision was about. Decisions about an object's
// dependents are not because of its owners.
func (e Entry) lostOwner() (Owner, bool) {
	if e.Action == RemoveFinalizer || e.Action == Unblock {
		return Owner{}, false
	}
	for _, o := range e.Owners {
		if o.Status != decide.Present.String() {
			return o, true
		}
	}
	return Owner{}, false
}

// Deleted reports whether the entry is of a deletion of its object that was carried out.
func (e Entry) Deleted() bool { return e.Action == Delete && e.Result == done }

// Key identifies the entry: those that were stored and are in memory, too, have the same one.
func (e Entry) Key() string {
	return e.Time.UTC().Format(time.RFC3339Nano) + " " + string(e.Object.UID) + " " + string(e.Action) + " " + string(e.Reason) + " " + e.Detail + " " + e.Result
}
