// Package proxy runs a proxy between a client and the API server of a local control
// plane, which injects faults into requests. It does not depend on the
// collector.
package proxy

import (
	"context"
	"crypto/tls"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster"
)

// A Proxy terminates TLS, and forwards requests with the cluster's admin credentials, unless a
// fault applies to them. Its methods may be called concurrently.
type Proxy struct {
	server  *httptest.Server
	ca      []byte
	backend http.Handler // to the API server
	infos   request.RequestInfoFactory

	mu      sync.Mutex // covers the fields below
	faults  []*Fault
	watches map[*watch]struct{}
}

// A Call is a request with its parsed API request info.
type Call struct {
	*http.Request
	*request.RequestInfo
}

// watch is a watch through the proxy.
type watch struct {
	resource string
	end      func()
}

// A Fault applies to calls.
type Fault struct {
	proxy     *Proxy
	matches   func(Call) bool
	handler   FaultHandler
	remaining int // remaining number of calls; negative: unlimited
	count     int // number of calls so far
}

// Start starts a proxy for a cluster. The caller must call Close.
func Start(cluster *devcluster.Cluster) (*Proxy, error) {
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
	p := &Proxy{
		ca:    ca,
		infos: request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")},
		backend: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport: transport, FlushInterval: -1, ErrorLog: silent,
			// The client must get the same responses as without a proxy.
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

// Close stops the proxy and all its connections.
func (p *Proxy) Close() {
	p.CutWatches("")
	p.server.CloseClientConnections()
	p.server.Close()
}

// Config returns a configuration that uses the proxy.
func (p *Proxy) Config() *rest.Config {
	return &rest.Config{Host: p.server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: p.ca}}
}

// WriteKubeconfig writes a kubeconfig file for a process that uses
// the proxy, which has the admin's credentials.
func (p *Proxy) WriteKubeconfig(file string) error {
	return devcluster.WriteKubeconfig(file, p.Config())
}

// ServeHTTP forwards a request, unless a fault applies to it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	info, err := p.infos.NewRequestInfo(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if info.Verb == "watch" {
		hijacked, done := p.trackWatch(r, info.Resource)
		defer done()
		r = hijacked
	}
	if f := p.choose(Call{r, info}); f != nil {
		f.handler(w, r, p.backend)
		return
	}
	p.backend.ServeHTTP(w, r)
}

// choose returns the first fault that applies to a call.
func (p *Proxy) choose(c Call) *Fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.faults {
		if f.remaining == 0 || !f.matches(c) {
			continue
		}
		f.remaining--
		f.count++
		return f
	}
	return nil
}

// trackWatch registers a watch until done is called.
func (p *Proxy) trackWatch(r *http.Request, resource string) (_ *http.Request, done func()) {
	ctx, cancel := context.WithCancel(r.Context())
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

// CutWatches ends the watches of a resource, or all if it is "".
func (p *Proxy) CutWatches(resource string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.watches {
		if resource == "" || w.resource == resource {
			w.end()
		}
	}
}

// CutConnections closes all connections, including those in use.
func (p *Proxy) CutConnections() { p.server.CloseClientConnections() }

// Watching returns the number of watches of a resource, or of all if it is "".
func (p *Proxy) Watching(resource string) int {
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

// Fail makes the next matching calls fail: so many, or, if times is negative, all until the
// fault is lifted.
func (p *Proxy) Fail(times int, matches func(Call) bool, happen FaultHandler) *Fault {
	f := &Fault{proxy: p, matches: matches, handler: happen, remaining: times}
	p.mu.Lock()
	p.faults = append(p.faults, f)
	p.mu.Unlock()
	return f
}

// Lift disables a fault.
func (f *Fault) Lift() {
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	f.proxy.faults = slices.DeleteFunc(f.proxy.faults, func(other *Fault) bool { return other == f })
}

// Count returns how often a fault has been applied.
func (f *Fault) Count() int {
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	return f.count
}
