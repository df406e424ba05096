package preview

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/gleaner-dev/gleaner/operator/statekey"
)

// errNoKeys is why nothing can be verified that is from files.
var errNoKeys = errors.New("there is no cluster to read the operator's keys from")

// keys returns the keys for a preview. It signs with a key of its own, which nobody
// else has, and verifies with the operator's as well, if they can be read: that takes
// the right to read a Secret in the operator's namespace, which few have. Without it
// nobody can tell whether the state of an object is the operator's, and so what becomes
// of that object is unknown.
func (p *preview) keys(ctx context.Context) func() (statekey.Keys, error) {
	return sync.OnceValues(func() (statekey.Keys, error) {
		own := make([]byte, statekey.MinBytes)
		if _, err := rand.Read(own); err != nil {
			return statekey.Keys{}, err
		}
		keys, err := statekey.Parse(map[string][]byte{statekey.Current: own})
		if err != nil {
			return statekey.Keys{}, err
		}
		read := p.options.Keys
		if read == nil {
			read = func(context.Context) (statekey.Keys, error) { return statekey.Keys{}, errNoKeys }
		}
		operators, err := read(ctx)
		if err != nil {
			return keys, fmt.Errorf("its state annotation can't be verified: %w", err)
		}
		return keys.And(operators), nil
	})
}
