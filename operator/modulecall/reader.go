package modulecall

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

	"github.com/gleaner-dev/gleaner/operator/impersonate"
	"github.com/gleaner-dev/gleaner/policies"
)

// Reader reads objects for requests. Its methods may be called concurrently.
type Reader interface {
	// Get reads as a service account, or as Gleaner itself for the zero Account.
	Get(ctx context.Context, account policies.ServiceAccount, resource schema.GroupVersionResource, ns, name string) (*unstructured.Unstructured, error)

	// Namespace reads a namespace. It returns the zero Namespace for "".
	Namespace(ctx context.Context, name string) (Namespace, error)
}

const (
	// readTimeout is the timeout of one read, so that an API server that does not
	// respond does not block workers for longer.
	readTimeout = 5 * time.Second

	// namespaceTTL is how long a namespace is cached: often many objects of one
	// namespace lose their owners at the same time.
	namespaceTTL = time.Second

	// maxNamespaces is the maximum number of cached namespaces.
	maxNamespaces = 1000
)

// Namespace is the part of a namespace that policies depend on.
type Namespace struct {
	Labels      labels.Set
	Terminating bool
}

// LiveReader is a Reader that reads from the API server.
type LiveReader struct {
	own     func() (dynamic.Interface, error) // acts as Gleaner itself
	clients *impersonate.Clients[dynamic.Interface]

	mu         sync.Mutex // covers namespaces
	namespaces map[string]namespace
}

type namespace struct {
	Namespace
	at time.Time
}

// NewLiveReader returns a Reader with the permissions of config, which must include the
// impersonation of service accounts. It does not modify config.
func NewLiveReader(config *rest.Config) *LiveReader {
	create := func(config *rest.Config) (dynamic.Interface, error) { return dynamic.NewForConfig(config) }
	return &LiveReader{
		own:        sync.OnceValues(func() (dynamic.Interface, error) { return create(config) }),
		clients:    impersonate.New(config, create),
		namespaces: map[string]namespace{},
	}
}

// client returns a client that acts as a service account, or Gleaner's own.
func (l *LiveReader) client(account policies.ServiceAccount) (dynamic.Interface, error) {
	if account != (policies.ServiceAccount{}) {
		return l.clients.For(account)
	}
	return l.own()
}

// Get implements Reader.
func (l *LiveReader) Get(ctx context.Context, account policies.ServiceAccount, resource schema.GroupVersionResource, ns, name string) (*unstructured.Unstructured, error) {
	client, err := l.client(account)
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
		return nil, fmt.Errorf("read %s %s/%s: the response is for another object, or for none", resource.Resource, ns, name)
	}
	return object, nil
}

var namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}

// Namespace implements Reader.
func (l *LiveReader) Namespace(ctx context.Context, name string) (Namespace, error) {
	if name == "" {
		return Namespace{}, nil
	}
	start := time.Now()
	l.mu.Lock()
	known, ok := l.namespaces[name]
	l.mu.Unlock()
	if ok && start.Sub(known.at) < namespaceTTL {
		return known.Namespace, nil
	}
	object, err := l.Get(ctx, policies.ServiceAccount{}, namespaceResource, "", name)
	if err != nil {
		return Namespace{}, err
	}
	read := Namespace{Labels: object.GetLabels(), Terminating: object.GetDeletionTimestamp() != nil}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.namespaces) >= maxNamespaces {
		clear(l.namespaces)
	}
	l.namespaces[name] = namespace{Namespace: read, at: start}
	return read, nil
}
