package inprocess

import (
	"crypto/tls"
	"fmt"
	"net/url"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/freeport"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/run"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

// pathSecret is the prefix of the webhooks' paths.
const pathSecret = "only-the-API-server-knows"

// certificates are the certificates of webhooks, by URL.
var certificates sync.Map

// Endpoint returns a free address on loopback for webhooks.
func Endpoint(cluster *devcluster.Cluster) (*webhook.Endpoint, error) {
	certificate, ca, err := cluster.ServingCertificate()
	if err != nil {
		return nil, fmt.Errorf("issue the webhooks' certificate: %w", err)
	}
	address, err := freeport.Address()
	if err != nil {
		return nil, fmt.Errorf("find a free address: %w", err)
	}
	at := "https://" + address + companion.VetoPath
	e := &webhook.Endpoint{Client: admissionv1.WebhookClientConfig{URL: &at}, Identity: &latest.Value[webhook.Identity]{}}
	SetCertificate(e, &certificate)
	e.Identity.Store(webhook.Identity{CABundle: ca, Secret: pathSecret})
	return e, nil
}

// SetCertificate changes the certificate of webhooks.
func SetCertificate(e *webhook.Endpoint, c *tls.Certificate) { certificates.Store(*e.Client.URL, c) }

// Webhooks serves an operator's webhooks, for RunCollector.
func Webhooks(e *webhook.Endpoint) func(*run.Operator) (manager.Runnable, error) {
	return func(operator *run.Operator) (manager.Runnable, error) {
		at, err := url.Parse(*e.Client.URL)
		if err != nil {
			return nil, fmt.Errorf("parse the webhooks' URL: %w", err)
		}
		ready := make(chan struct{})
		close(ready)
		return &webhook.Server{
			Address: at.Host, Handler: operator.Webhooks(), Ready: ready, Log: ctrl.Log,
			ValidSecret: func(secret string) bool { return secret == pathSecret },
			Certificate: func() (*tls.Certificate, error) {
				c, _ := certificates.Load(*e.Client.URL)
				return c.(*tls.Certificate), nil
			},
		}, nil
	}
}
