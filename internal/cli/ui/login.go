package ui

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/util/cert"

	"github.com/gleaner-dev/gleaner/internal/cli/entries"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/ui/login"
	"github.com/gleaner-dev/gleaner/internal/ui/server"
)

// sharing are the flags with which pages are for several users.
type sharing struct {
	login     bool
	address   string
	hosts     []string
	cert, key string
}

func (s *sharing) validate(o *options) error {
	ip := net.ParseIP(s.address)
	switch {
	case !s.login && (s.address != loopback || len(s.hosts) != 0 || s.cert != "" || s.key != ""):
		return exit.Usagef("--address, --host, --tls-cert-file and --tls-private-key-file require --login: without it, pages are for this machine only")
	case !s.login:
		return nil
	case len(o.Files) != 0:
		return exit.Usagef("--login and -f can't be used together: files have no users")
	case o.archive.Location() != "":
		return exit.Usagef("--login and --archive can't be used together: a store does not know who may see what; the operator does")
	case strings.HasPrefix(o.archive.Operator(nil).Endpoint, "http://"):
		return exit.Usagef("--login requires an --endpoint with https://: without TLS, the operator does not authenticate users")
	case o.archive.HasIdentities():
		return exit.Usagef("--login and --identity can't be used together: every user would read what is encrypted")
	case o.port == 0:
		return exit.Usagef("--login requires --port, such as --port=8443")
	case ip == nil:
		return exit.Usagef("--address=%s: use an IP address, such as 0.0.0.0", s.address)
	case (s.cert == "") != (s.key == ""):
		return exit.Usagef("--tls-cert-file and --tls-private-key-file: use both, or neither for a self-signed certificate")
	default:
		return nil
	}
}

// allowed returns the hosts that requests may name.
func (s *sharing) allowed() []string {
	all := append([]string{"127.0.0.1", "::1", "localhost"}, s.hosts...)
	if ip := net.ParseIP(s.address); ip != nil && !ip.IsUnspecified() {
		all = append(all, s.address)
	}
	return all
}

// certificate returns the certificate of the files, or else one that is made up.
func (s *sharing) certificate() (tls.Certificate, error) {
	if s.cert != "" {
		pair, err := tls.LoadX509KeyPair(s.cert, s.key)
		if err != nil {
			err = fmt.Errorf("read the certificate: %w", err)
		}
		return pair, err
	}
	public, private, err := cert.GenerateSelfSignedCertKey("gleaner", []net.IP{net.ParseIP(loopback)}, s.allowed())
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("make a certificate: %w", err)
	}
	return tls.X509KeyPair(public, private)
}

// share serves pages to users who log in.
func (o *options) share(ctx context.Context, listener net.Listener) error {
	config, err := o.Config()
	if err != nil {
		return err
	}
	pair, err := o.certificate()
	if err != nil {
		return err
	}
	h := login.New(config.Host, opener{config, &o.archive}.open, server.Static(), time.Now)
	go h.Run(ctx)
	return serve(ctx, tls.NewListener(listener, &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}), h, o.allowed())
}

// opener begins sessions.
type opener struct {
	config  *rest.Config   // of the cluster; its credentials are not used
	archive *entries.Flags // the operator's, with the token of each user
}

// open begins the session of a user, whom the API server names.
func (p opener) open(ctx context.Context, token string) (login.Session, error) {
	config := rest.AnonymousClientConfig(p.config)
	config.BearerToken = token
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return login.Session{}, errors.New("the token can't be used")
	}
	review, err := kube.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	switch {
	case apierrors.IsUnauthorized(err):
		return login.Session{}, errors.New("the API server does not accept the token: it may have expired, or be of another cluster")
	case err != nil:
		return login.Session{}, fmt.Errorf("authenticate the token: %w", err)
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discovery.NewDiscoveryClient(kube.Discovery().RESTClient())))
	c, err := newCluster(config, mapper, p.archive, metav1.NamespaceDefault)
	if err != nil {
		return login.Session{}, err
	}
	sources := c.sources(p.config.Host, "")
	sources.User = review.Status.UserInfo.Username
	sources.Actions, sources.Replay, sources.Preview = server.Actions{}, nil, nil // there are commands for that
	return login.Session{
		User:  sources.User,
		Pages: server.New(func(*http.Request) *server.Sources { return sources }, time.Now),
		Close: c.operator.close,
	}, nil
}
