package faults

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster"
)

// proxy stands between the collector and the API server, ends TLS, and has
// faults happen to requests as it is told.
type proxy struct {
	server *httptest.Server
	ca     []byte
	pass   http.Handler // to the API server, as the cluster's admin
	infos  request.RequestInfoFactory

	mu      sync.Mutex // covers what follows
	faults  []*fault
	watches map[*watch]struct{}
}

// call is a request with what it asks of the API server.
type call struct {
	*http.Request
	*request.RequestInfo
}

// watch is a watch that runs through the proxy.
type watch struct {
	resource string
	end      func()
}

// fault happens to calls.
type fault struct {
	proxy   *proxy
	matches func(call) bool
	happen  func(http.ResponseWriter, *http.Request, http.Handler)
	left    int // how often it is to happen yet; below 0: always
	hits    int // how often it has happened
}

func startProxy(cluster *devcluster.Cluster) (*proxy, error) {
	certificate, ca, err := cluster.ServingCertificate()
	if err != nil {
		return nil, err
	}
	admin := cluster.RESTConfig()
	target, err := url.Parse(admin.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(admin)
	if err != nil {
		return nil, err
	}
	silent := log.New(io.Discard, "", 0)
	p := &proxy{
		ca:    ca,
		infos: request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")},
		pass: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport: transport, FlushInterval: -1, ErrorLog: silent,
			// The collector is to see what it would see without a proxy.
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		},
		watches: map[*watch]struct{}{},
	}
	p.server = httptest.NewUnstartedServer(p)
	p.server.TLS = &tls.Config{Certificates: []tls.Certificate{certificate}}
	p.server.EnableHTTP2 = true
	p.server.Config.ErrorLog = silent
	p.server.StartTLS()
	return p, nil
}

// close ends the proxy with all that runs through it.
func (p *proxy) close() {
	p.cutWatches("")
	p.server.CloseClientConnections()
	p.server.Close()
}

// config reaches the API server through the proxy.
func (p *proxy) config() *rest.Config {
	return &rest.Config{Host: p.server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: p.ca}}
}

// ServeHTTP passes a request on, unless a fault happens to it.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, err := p.infos.NewRequestInfo(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if info.Verb == "watch" {
		hijacked, done := p.watched(r, info.Resource)
		defer done()
		r = hijacked
	}
	if f := p.choose(call{r, info}); f != nil {
		f.happen(w, r, p.pass)
		return
	}
	p.pass.ServeHTTP(w, r)
}

// choose takes the first fault that is to happen to a call.
func (p *proxy) choose(c call) *fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		if f.left == 0 || !f.matches(c) {
			continue
		}
		f.left--
		f.hits++
		return f
	}
	return nil
}

// watched notes that a watch runs, until done is called.
func (p *proxy) watched(r *http.Request, resource string) (_ *http.Request, done func()) {
	ctx, cancel := contextOf(r)
	w := &watch{resource: resource, end: cancel}
	p.mu.Lock()
	p.watches[w] = struct{}{}
	p.mu.Unlock()
	return r.WithContext(ctx), func() {
		p.mu.Lock()
		delete(p.watches, w)
		p.mu.Unlock()
		cancel()
	}
}

// cutWatches ends the watches of a resource, or with "" all.
func (p *proxy) cutWatches(resource string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.watches {
		if resource == "" || w.resource == resource {
			w.end()
		}
	}
}

// watching is how many watches of a resource run, or with "" of all.
func (p *proxy) watching(resource string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for w := range p.watches {
		if resource == "" || w.resource == resource {
			n++
		}
	}
	return n
}

// fails has a fault happen to the calls that match, so many times, or until
// it is lifted if that is below 0.
func (p *proxy) fails(t testing.TB, times int, matches func(call) bool, happen func(http.ResponseWriter, *http.Request, http.Handler)) *fault {
	f := &fault{proxy: p, matches: matches, happen: happen, left: times}
	p.mu.Lock()
	p.faults = append(p.faults, f)
	p.mu.Unlock()
	t.Cleanup(f.lift)
	return f
}

// lift has a fault happen no more.
func (f *fault) lift() {
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	f.proxy.faults = slices.DeleteFunc(f.proxy.faults, func(other *fault) bool { return other == f })
}

// happened waits until a fault has happened so many times.
func (f *fault) happened(t testing.TB, times int) {
	t.Helper()
	eventually(t, func() error {
		if n := f.count(); n < times {
			return fmt.Errorf("the fault has happened %d times, not %d", n, times)
		}
		return nil
	})
}

func (f *fault) count() int {
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	return f.hits
}

// freeAddress returns an address on loopback that nobody listens on.
func freeAddress(t testing.TB) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
