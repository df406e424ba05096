package intents

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/gleaner-dev/gleaner/policies"
)

const (
	// idleTimeout is how long a connection is kept for the next request, less than servers keep it:
	// a request on a connection that the server is closing fails.
	idleTimeout = time.Second

	// maxAge is how long a transport is used: a new connection resolves and checks the address again.
	maxAge = 30 * time.Second

	// maxIdleConnections is the maximum number of idle connections to a host for one grant, which
	// is the number of objects that are finalized at once.
	maxIdleConnections = 8

	// maxTransports is the maximum number of transports of all finalizers, and
	// maxTransportsEach that of one, beyond which the one that was used least recently is closed.
	maxTransports, maxTransportsEach = 500, 8
)

// connections keeps the transports of HTTP intents, with their idle connections, for as long
// as these are kept. The zero value is empty.
type connections struct {
	mu         sync.Mutex // protects transports
	transports map[connectionKey]*keptTransport
}

// A connectionKey stands for all requests that may share connections: those of one finalizer by one
// grant, with the same credentials and certificates. A response on a shared connection can contain
// what was sent before, and only the credentials of the request itself are redacted in it.
type connectionKey struct {
	finalizer string
	rules     [sha256.Size]byte
}

type keptTransport struct {
	http.RoundTripper
	created, used time.Time
}

// connectionKey returns the key of a request whose credentials were added, and so are known to
// the redactor.
func (x *httpExchange) connectionKey(grant policies.HTTPRule, ca []byte) connectionKey {
	rules := fmt.Sprintf("%q %q %q %q %q", grant.URL, grant.Addresses, x.identity.Account, ca, x.redactor.spellings)
	return connectionKey{x.identity.Name, sha256.Sum256([]byte(rules))}
}

// get returns the transport of a key, and creates it if there is none.
func (c *connections) get(key connectionKey, now time.Time, create func() (http.RoundTripper, error)) (http.RoundTripper, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if kept, ok := c.transports[key]; ok && now.Sub(kept.created) < maxAge {
		kept.used = now
		return kept.RoundTripper, nil
	}
	created, err := create()
	if err != nil {
		return nil, err
	}
	c.remove(key)
	c.evict(key.finalizer, now)
	if c.transports == nil {
		c.transports = map[connectionKey]*keptTransport{}
	}
	c.transports[key] = &keptTransport{created, now, now}
	return created, nil
}

// evict makes room for a transport of a finalizer. Requests in flight are not affected.
func (c *connections) evict(finalizer string, now time.Time) {
	var oldest, oldestOwn connectionKey
	own := 0
	for key, kept := range c.transports {
		if now.Sub(kept.used) > idleTimeout {
			c.remove(key)
			continue
		}
		if o, ok := c.transports[oldest]; !ok || kept.used.Before(o.used) {
			oldest = key
		}
		if key.finalizer != finalizer {
			continue
		}
		own++
		if o, ok := c.transports[oldestOwn]; !ok || kept.used.Before(o.used) {
			oldestOwn = key
		}
	}
	switch {
	case own >= maxTransportsEach:
		c.remove(oldestOwn)
	case len(c.transports) >= maxTransports:
		c.remove(oldest)
	}
}

// remove closes the idle connections of a transport, if there is one. Those in use are closed
// once they have been idle for idleTimeout.
func (c *connections) remove(key connectionKey) {
	kept, ok := c.transports[key]
	if !ok {
		return
	}
	if closer, ok := kept.RoundTripper.(interface{ CloseIdleConnections() }); ok {
		closer.CloseIdleConnections()
	}
	delete(c.transports, key)
}
