// Package proxy stands between a client and the API server of a control plane on
// this machine, and has faults happen to requests as it is told. It does not know
// what a collector is.
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
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gleaner-dev/gleaner/devcluster"
)

// Proxy ends TLS, and passes requests on as the cluster's admin, unless a fault
// happens to them. Its methods may be called concurrently.
type Proxy struct {
	server *httptest.Server
	ca     []byte
	pass   http.Handler // to the API server
	infos  request.RequestInfoFactory

	mu      sync.Mutex // covers what follows
	faults  []*Fault
	watches map[*watch]struct{}
}

// Call is a request with what it asks of the API server.
type Call struct {
	*http.Request
	*request.RequestInfo
}

// watch is a watch that runs through the proxy.
type watch struct {
	resource string
	end      func()
}

// Fault happens to calls.
type Fault struct {
	proxy   *Proxy
	matches func(Call) bool
	happen  Happening
	left    int // how often it is to happen yet; below 0: always
	hits    int // how often it has happened
}

// Start starts a proxy for a cluster. Whoever calls it calls Close.
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
		pass: &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport: transport, FlushInterval: -1, ErrorLog: silent,
			// The client is to see what it would see without a proxy.
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

// Close ends the proxy with all that runs through it.
func (p *Proxy) Close() {
	p.CutWatches("")
	p.server.CloseClientConnections()
	p.server.Close()
}

// Config reaches the API server through the proxy.
func (p *Proxy) Config() *rest.Config {
	return &rest.Config{Host: p.server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: p.ca}}
}

// WriteKubeconfig writes a file by which a process reaches the API server through
// the proxy.
func (p *Proxy) WriteKubeconfig(file string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters["proxy"] = &clientcmdapi.Cluster{Server: p.server.URL, CertificateAuthorityData: p.ca}
	config.AuthInfos["anybody"] = &clientcmdapi.AuthInfo{} // the proxy is the cluster's admin
	config.Contexts["proxy"] = &clientcmdapi.Context{Cluster: "proxy", AuthInfo: "anybody"}
	config.CurrentContext = "proxy"
	return clientcmd.WriteToFile(*config, file)
}

// ServeHTTP passes a request on, unless a fault happens to it.
func (p *Proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
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
	if f := p.choose(Call{r, info}); f != nil {
		f.happen(w, r, p.pass)
		return
	}
	p.pass.ServeHTTP(w, r)
}

// choose takes the first fault that is to happen to a call.
func (p *Proxy) choose(c Call) *Fault {
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
func (p *Proxy) watched(r *http.Request, resource string) (_ *http.Request, done func()) {
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

// CutWatches ends the watches of a resource, or with "" all.
func (p *Proxy) CutWatches(resource string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.watches {
		if resource == "" || w.resource == resource {
			w.end()
		}
	}
}

// CutConnections ends all connections, in the middle of whatever goes on.
func (p *Proxy) CutConnections() { p.server.CloseClientConnections() }

// Watching is how many watches of a resource run, or with "" of all.
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

// Fail has something happen to the calls that match, so many times, or until it is
// lifted if that is below 0.
func (p *Proxy) Fail(times int, matches func(Call) bool, happen Happening) *Fault {
	f := &Fault{proxy: p, matches: matches, happen: happen, left: times}
	p.mu.Lock()
	p.faults = append(p.faults, f)
	p.mu.Unlock()
	return f
}

// Lift has a fault happen no more.
func (f *Fault) Lift() {
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	f.proxy.faults = slices.DeleteFunc(f.proxy.faults, func(other *Fault) bool { return other == f })
}

// Count is how often a fault has happened.
func (f *Fault) Count() int {
	f.proxy.mu.Lock()
	defer f.proxy.mu.Unlock()
	return f.hits
}
