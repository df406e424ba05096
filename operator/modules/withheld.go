package modules

import (
	"time"

	"github.com/gleaner-dev/gleaner/policies"
)

// reasonWithheld is why a policy or finalizer is not enforced as it would decide.
const reasonWithheld = "ObjectWithheld"

// keptUnseen begins the message about objects that are kept, which why ends.
const keptUnseen = "objects are kept that it can't decide about: "

// withheldLife is for how long it counts that a policy's service account may not read an
// object: the object is looked at again within a minute, for as long as that is so. Finalizers
// may wait for longer between two attempts.
const withheldLife = 3 * time.Minute

// unseen is why an object was not shown to a policy, and when that was found.
type unseen struct {
	why string
	at  time.Time
}

// Withheld notes that an object is kept since the service account of a policy or finalizer
// may not read it. The policy is named as policies.Policy.String does.
func (k *Keeper) Withheld(policy, why string) {
	if why == policies.NoAccount {
		return // its spec says so, for as long as it is so
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.unseen[policy] = unseen{why, k.options.Now()}
}

// Limited notes that a policy has states written more often than it may, so that
// objects wait. The policy is named as policies.Policy.String does.
func (k *Keeper) Limited(policy string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.limited[policy] = k.options.Now()
}

// isLimited reports whether that was so a moment ago.
func (k *Keeper) isLimited(policy string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	at, noted := k.limited[policy]
	if noted && k.options.Now().Sub(at) > withheldLife {
		delete(k.limited, policy)
		return false
	}
	return noted
}

// withheld says why objects are withheld from a policy or finalizer, and kept; "" if that
// is not so, as far as is known. What was noted counts for some time: see withheldLife.
func (k *Keeper) withheld(s *asking, life time.Duration) string {
	p := s.policy
	if p.Needs == policies.NeedsReference && p.Matches == nil {
		return "" // it is not read
	}
	if why := p.NoReader(); why != "" {
		return why
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	policy := p.String()
	u := k.unseen[policy]
	if k.options.Now().Sub(u.at) > life {
		delete(k.unseen, policy)
		return ""
	}
	if u.why == "" {
		return ""
	}
	return "grant its service account get on what resources names; " + u.why
}
