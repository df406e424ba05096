package preview

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"

	"github.com/gleaner-dev/gleaner/operator/statekey"
)

// errNoKeys means that the state annotations of objects from files cannot be verified.
var errNoKeys = errors.New("the operator's keys are only in the cluster")

// keys returns the keys for a preview. It signs with a new key of its own, and also
// verifies with the operator's keys if they can be read, which needs permission to read a
// Secret in the operator's namespace. Without them it is unknown whether the state of an
// object is the operator's, so the outcome for that object is unknown.
func (p *simulation) keys(ctx context.Context) func() (statekey.Keys, error) {
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
			return keys, fmt.Errorf("verify its state annotation: %w", err)
		}
		return keys.WithVerifiers(operators), nil
	})
}
