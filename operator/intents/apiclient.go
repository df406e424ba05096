package intents

import (
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/go-logr/logr"
	metainternalscheme "k8s.io/apimachinery/pkg/apis/meta/internalversion/scheme"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/impersonate"
	"github.com/gleaner-dev/gleaner/policies"
)

const (
	// readTimeout and writeTimeout bound one call, so that an API server that does not
	// respond does not block a worker for longer. Writes call webhooks, which may take up
	// to 30 s each.
	readTimeout  = 10 * time.Second
	writeTimeout = 30 * time.Second

	// maxResponseBytes is the maximum size of a response in bytes: a request contains the results
	// of several intents.
	maxResponseBytes = hostabi.MaxRequestBytes / 4
)

// errResponseTooLarge means that a response is larger than maxResponseBytes.
var errResponseTooLarge = errors.New("response is too large")

// apiClients calls the API server as service accounts.
type apiClients struct {
	*impersonate.Clients[*rest.RESTClient]
}

// An apiCall is one request to the API server.
type apiCall struct {
	method    string
	resource  schema.GroupVersionResource
	namespace string
	name      string
	query     map[string]string
	body      []byte
	mediaType string // of the body
}

func (c apiCall) path() []string {
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

// do makes a call, without retries: those are up to the module. The response is JSON.
func (a *apiClients) do(ctx context.Context, account policies.ServiceAccount, c apiCall) ([]byte, error) {
	client, err := a.For(account)
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

// newAPIClient returns a client without retries and with bounded responses.
func newAPIClient(config *rest.Config) (*rest.RESTClient, error) {
	config.GroupVersion, config.APIPath = nil, "/"
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, runtime.ContentTypeJSON
	config.NegotiatedSerializer = metainternalscheme.Codecs.WithoutConversion()
	config.QPS, config.RateLimiter = -1, nil // flow control is left to the API server
	config.WarningHandler, config.WarningHandlerWithContext = rest.NoWarnings{}, rest.NoWarnings{}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return limitedTransport{next} })
	return rest.UnversionedRESTClientFor(config)
}

// limitedTransport is a transport whose responses have at most maxResponseBytes bytes.
type limitedTransport struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (b limitedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := b.RoundTripper.RoundTrip(r)
	if err == nil {
		response.Body = &limitedBody{response.Body, maxResponseBytes}
	}
	return response, err
}

type limitedBody struct {
	io.ReadCloser
	remaining int
}

// Read implements io.Reader.
func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.remaining -= n; b.remaining < 0 {
		return 0, errResponseTooLarge
	}
	return n, err
}
