// Package impersonate keeps clients of the API server that act as service accounts.
//
// It does not say what they may be used for, and knows no particular client.
package impersonate

import (
	"fmt"
	"sync"

	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/policies"
)

// MaxClients is the maximum number of cached clients, one for each service account.
const MaxClients = 1000

// Clients creates and caches clients. Its methods may be called concurrently.
type Clients[Client any] struct {
	config *rest.Config
	create func(*rest.Config) (Client, error)

	mu      sync.Mutex // covers clients
	clients map[policies.ServiceAccount]Client
}

// New returns Clients with the permissions of config, which must include the impersonation of
// service accounts. It does not modify config; create gets a copy.
func New[Client any](config *rest.Config, create func(*rest.Config) (Client, error)) *Clients[Client] {
	return &Clients[Client]{config: config, create: create, clients: map[policies.ServiceAccount]Client{}}
}

// For returns a client that acts as a service account. The zero account is not Gleaner's own:
// the API server refuses its requests.
func (c *Clients[Client]) For(account policies.ServiceAccount) (Client, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if client, ok := c.clients[account]; ok {
		return client, nil
	}
	config := rest.CopyConfig(c.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + account.Namespace + ":" + account.Name, // the API server adds its groups
	}
	client, err := c.create(config)
	if err != nil {
		return client, fmt.Errorf("create client: %w", err)
	}
	if len(c.clients) >= MaxClients {
		clear(c.clients) // recreated when needed
	}
	c.clients[account] = client
	return client, nil
}
