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
	"github.com/gleaner-dev/gleaner/operator/modules"
	"github.com/gleaner-dev/gleaner/operator/veto"
)

const collectorUser = "system:serviceaccount:kube-system:generic-garbage-collector"

// apiServersSecret is what paths of the webhook begin with.
const apiServersSecret = "only-the-API-server-knows"

// certificates are those of the webhooks, by URL.
var certificates sync.Map

// served says how a webhook is asked that is to be served on loopback.
func served(t *testing.T, cluster *devcluster.Cluster) *modules.Veto {
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
	at := "https://" + listener.Addr().String() + modules.VetoPath
	certificates.Store(at, &certificate)
	return &modules.Veto{
		User: collectorUser, Client: admissionv1.WebhookClientConfig{URL: &at}, CA: func() []byte { return ca },
		Secret: func() string { return apiServersSecret },
	}
}

// server serves the webhook as the API server is told to ask for it.
func server(v *modules.Veto, handler http.Handler) (*veto.Server, error) {
	at, err := url.Parse(*v.Client.URL)
	if err != nil {
		return nil, err
	}
	ready := make(chan struct{})
	close(ready)
	return &veto.Server{
		Address: at.Host, Handler: handler, Ready: ready, Log: ctrl.Log,
		Knows: func(said string) bool { return said == apiServersSecret },
		Certificate: func() (*tls.Certificate, error) {
			c, _ := certificates.Load(*v.Client.URL)
			return c.(*tls.Certificate), nil
		},
	}, nil
}
