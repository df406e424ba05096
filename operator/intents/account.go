package intents

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	metainternalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

const (
	// readTimeout and writeTimeout bound one call, so that an API server which does
	// not answer holds no worker for longer. Webhooks are asked about writes, and
	// may take up to 30 s each.
	readTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second

	// clientsKept bounds the clients that are kept, one for each service account.
	clientsKept = 1000

	// mostAnswer bounds what is read of one answer, in bytes: a request holds the
	// results of several intents.
	mostAnswer = hostabi.MaxRequestBytes / 4
)

// errLarge tells that an answer is longer than mostAnswer.
var errLarge = errors.New("the answer is longer than what is read of it")

// accounts calls the API server as service accounts.
type accounts struct {
	config *rest.Config

	mu      sync.Mutex // covers clients
	clients map[policies.Account]*rest.RESTClient
}

// call is one call to the API server.
type call struct {
	method    string
	resource  schema.GroupVersionResource
	namespace string
	name      string
	query     map[string]string
	body      []byte
	mediaType string // of the body
}

func (c call) path() []string {
	path := []string{"/apis", c.resource.Group, c.resource.Version}
	if c.resource.Group == "" {
		path = []string{"/api", c.resource.Version}
	}
	if c.namespace != "" {
		path = append(path, "namespaces", c.namespace)
	}
	path = append(path, c.resource.Resource)
	if c.name != "" {
		path = append(path, c.name)
	}
	return path
}

// do makes a call, once: it is for the module to try again. The answer is JSON.
func (a *accounts) do(ctx context.Context, who policies.Account, c call) ([]byte, error) {
	client, err := a.client(who)
	if err != nil {
		return nil, err
	}
	timeout := writeTimeout
	if c.method == http.MethodGet {
		timeout = readTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ctx = klog.NewContext(ctx, logr.Discard()) // at high verbosity client-go logs bodies, and these may be Secrets
	request := client.Verb(c.method).AbsPath(c.path()...).MaxRetries(0)
	for name, value := range c.query {
		request.Param(name, value)
	}
	if c.body != nil {
		request.SetHeader("Content-Type", c.mediaType).Body(c.body)
	}
	result := request.Do(ctx)
	if err := result.Error(); err != nil {
		return nil, err
	}
	return result.Raw()
}

// client returns a client that acts as a service account.
func (a *accounts) client(who policies.Account) (*rest.RESTClient, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if client, ok := a.clients[who]; ok {
		return client, nil
	}
	config := rest.CopyConfig(a.config)
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + who.Namespace + ":" + who.Name, // in the groups that it has
	}
	config.GroupVersion, config.APIPath = nil, "/"
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = metainternalscheme.Codecs.WithoutConversion()
	config.QPS, config.RateLimiter = -1, nil // flow control is the API server's
	config.WarningHandler, config.WarningHandlerWithContext = rest.NoWarnings{}, rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return bounded{next} })
	client, err := rest.UnversionedRESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if len(a.clients) >= clientsKept {
		clear(a.clients) // they are made anew as they are needed
	}
	a.clients[who] = client
	return client, nil
}

// bounded reads no more than mostAnswer of an answer.
type bounded struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b bounded) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = &boundedBody{response.Body, mostAnswer}
	}
	return response, err
}

type boundedBody struct {
	io.ReadCloser
	left int
}

// Read implements io.Reader.
func (b *boundedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.left -= n; b.left < 0 {
		return 0, errLarge
	}
	return n, err
}
