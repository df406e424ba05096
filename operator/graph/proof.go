package graph

import (
	"slices"
	"time"
)

// proof is a claim that a live read has disproved.
type proof struct {
	claim Coordinates
	at    time.Time
}

// proofTable has the proofs for each node.
type proofTable map[ID][]proof

// maxProofs is the maximum number of proofs for different claims on one UID. Valid
// references need one; beyond the maximum, owners are read again.
const maxProofs = 64

// add adds a proof. It returns false if there was one for the same claim, which has the new
// time then.
func (t proofTable) add(id ID, p proof) bool {
	proofs := t[id]
	for i := range proofs {
		if proofs[i].claim == p.claim {
			proofs[i].at = p.at
			return false
		}
	}
	if len(proofs) == maxProofs {
		proofs = slices.Delete(proofs, 0, 1)
	}
	t[id] = append(proofs, p)
	return true
}

// drop drops the proofs that an object does not exist, since it was seen or read
// (defect 3.23). References that claim other coordinates need one more read then.
func (t proofTable) drop(o Object) {
	if len(t) != 0 {
		delete(t, IDOf(o.UID))
	}
}

// expire drops the proofs that are too old.
func (t proofTable) expire(e Expired) {
	for id, proofs := range t {
		kept := proofs[:0]
		for _, p := range proofs {
			if !p.at.Before(e.Before) {
				kept = append(kept, p)
			}
		}
		if len(kept) == 0 {
			delete(t, id)
			continue
		}
		t[id] = kept
	}
}

// find returns when a claim on a node was disproved last.
func (t proofTable) find(id ID, at Coordinates) (time.Time, bool) {
	for _, p := range t[id] {
		if p.covers(at) {
			return p.at, true
		}
	}
	return time.Time{}, false
}

// covers reports whether a proof applies to the claimed coordinates: the same ones, or
// those of a cluster-scoped type, which have no namespace (G-32).
func (p proof) covers(at Coordinates) bool {
	if p.claim.Namespace == "" {
		at.Namespace = ""
	}
	return p.claim == at
}
