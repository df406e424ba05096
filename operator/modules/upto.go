package modules

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// The API server asks any replica, and one of them may not have heard yet of the policies
// on account of which it asks: its watch is late, or a module takes long to fetch. It
// would let go what they keep. So the path says as of which policies is asked, and a
// replica that has never had those refuses until it has read them anew.

// mostStates bounds the states of the policies that are remembered. One that is forgotten
// costs another reading.
const mostStates = 1000

// stateOf names what a build was made of, by resources and their generations.
func stateOf(b *build) string {
	var lines []string
	add := func(kind string, o client.Object) {
		lines = append(lines, fmt.Sprintf("%s %s %d\n", kind, o.GetUID(), o.GetGeneration()))
	}
	for _, p := range b.policies {
		add(p.kind, p.object)
	}
	for _, m := range b.modules {
		add(m.kind, m.object)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(fmt.Sprint(lines)))
	return hex.EncodeToString(sum[:6])
}

// UpTo reports whether the policies in force are as new as those of a state, by what the
// API server said. If not they are read anew, and are so once that is done: the state had
// been read by somebody before the API server could speak of it.
func (k *Keeper) UpTo(state string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if _, had := k.states[state]; had {
		return true
	}
	if len(k.behind) >= mostStates {
		clear(k.behind)
	}
	if _, asked := k.behind[state]; !asked {
		k.behind[state] = struct{}{}
		k.poke()
	}
	return false
}

// lags returns the states that were spoken of until now.
func (k *Keeper) lags() map[string]struct{} {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.behind)
}

// caughtUp notes that a build is in force that was read after some states were spoken of.
func (k *Keeper) caughtUp(b *build, behind map[string]struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.states) >= mostStates {
		clear(k.states)
	}
	k.states[b.state] = struct{}{}
	for state := range behind {
		k.states[state] = struct{}{}
		delete(k.behind, state)
	}
}
