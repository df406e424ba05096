package policies

import (
	"crypto/tls"
	"net"
	"net/http"
	"net/url"
	"sync"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

const collectorUser = "system:serviceaccount:kube-system:generic-garbage-collector"

// pathSecret is the prefix of the webhook's paths.
const pathSecret = "only-the-API-server-knows"

// certificates are the webhooks' certificates, by URL.
var certificates sync.Map

// webhookConfig returns the client configuration of a webhook served on loopback.
func webhookConfig(t *testing.T, cluster *devcluster.Cluster) *webhook.Endpoint {
	t.Helper()
	certificate, ca, err := cluster.ServingCertificate()
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	at := "https://" + listener.Addr().String() + companion.VetoPath
	certificates.Store(at, &certificate)
	e := &webhook.Endpoint{Client: admissionv1.WebhookClientConfig{URL: &at}, Identity: &latest.Value[webhook.Identity]{}}
	e.Identity.Store(webhook.Identity{CABundle: ca, Secret: pathSecret})
	return e
}

// newWebhookServer serves the webhook at the URL in its client configuration.
func newWebhookServer(v *webhook.Endpoint, handler http.Handler) (*webhook.Server, error) {
	at, err := url.Parse(*v.Client.URL)
	if err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	close(ready)
	return &webhook.Server{
		Address: at.Host, Handler: handler, Ready: ready, Log: ctrl.Log,
		ValidSecret: func(secret string) bool { return secret == pathSecret },
		Certificate: func() (*tls.Certificate, error) {
			c, _ := certificates.Load(*v.Client.URL)
			return c.(*tls.Certificate), nil
		},
	}, nil
}
