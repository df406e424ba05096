package consult

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/policies"
)

// Reader reads what policies are told. Its methods may be called concurrently.
type Reader interface {
	// Get reads as a service account; as Gleaner itself for none.
	Get(ctx context.Context, who policies.Account, resource schema.GroupVersionResource, ns, name string) (*unstructured.Unstructured, error)

	// Namespace reads a namespace. What is in none is in the zero Namespace.
	Namespace(ctx context.Context, name string) (Namespace, error)
}

const (
	// readTimeout bounds one read, so that an API server which does not answer
	// holds no worker for longer.
	readTimeout = 5 * time.Second

	// namespaceLife is for how long a namespace's labels are taken to be what they
	// were: many objects of one namespace lose their owners at the same time.
	namespaceLife = time.Second

	// readersKept bounds the clients that are kept, one for each service account.
	readersKept = 1000
)

// Namespace is what policies turn on of a namespace.
type Namespace struct {
	Labels      labels.Set
	Terminating bool
}

// Live is a Reader that asks the API server.
type Live struct {
	config *rest.Config

	mu         sync.Mutex // covers what follows
	clients    map[policies.Account]dynamic.Interface
	namespaces map[string]namespace
}

type namespace struct {
	Namespace
	at time.Time
}

// NewLive returns a Reader with the rights of config, which is not changed, and
// the right to impersonate service accounts.
func NewLive(config *rest.Config) *Live {
	return &Live{config: config, clients: map[policies.Account]dynamic.Interface{}, namespaces: map[string]namespace{}}
}

// client returns a client that acts as a service account.
func (l *Live) client(who policies.Account) (dynamic.Interface, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if client, ok := l.clients[who]; ok {
		return client, nil
	}
	config := rest.CopyConfig(l.config)
	if who != (policies.Account{}) {
		config.Impersonate = rest.ImpersonationConfig{
			UserName: "system:serviceaccount:" + who.Namespace + ":" + who.Name, // in the groups that it has
		}
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if len(l.clients) >= readersKept {
		clear(l.clients) // they are made anew as they are needed
	}
	l.clients[who] = client
	return client, nil
}

// Get implements Reader.
func (l *Live) Get(ctx context.Context, who policies.Account, resource schema.GroupVersionResource, ns, name string) (*unstructured.Unstructured, error) {
	client, err := l.client(who)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	object, err := client.Resource(resource).Namespace(ns).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("read %s %s/%s: %w", resource.Resource, ns, name, err)
	}
	if object.GetName() != name || object.GetNamespace() != ns || object.GetUID() == "" {
		return nil, fmt.Errorf("read %s %s/%s: the answer is about another object, or about none", resource.Resource, ns, name)
	}
	return object, nil
}

var namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// Namespace implements Reader.
func (l *Live) Namespace(ctx context.Context, name string) (Namespace, error) {
	if name == "" {
		return Namespace{}, nil
	}
	asked := time.Now()
	l.mu.Lock()
	known, ok := l.namespaces[name]
	l.mu.Unlock()
	if ok && asked.Sub(known.at) < namespaceLife {
		return known.Namespace, nil
	}
	object, err := l.Get(ctx, policies.Account{}, namespaceResource, "", name)
	if err != nil {
		return Namespace{}, err
	}
	read := Namespace{Labels: object.GetLabels(), Terminating: object.GetDeletionTimestamp() != nil}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.namespaces) >= readersKept {
		clear(l.namespaces)
	}
	l.namespaces[name] = namespace{Namespace: read, at: asked}
	return read, nil
}
