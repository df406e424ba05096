// Package webhook has what all webhooks of the operator share: the server, the decoding of
// reviews, and where the API server reaches the server. Other packages contribute handlers.
package webhook

import (
	"bytes"
	"net/url"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/latest"
)

// Identity is how the API server and the webhook server authenticate each other.
type Identity struct {
	CABundle []byte // that signed the server's certificate, in PEM; empty if there is no certificate yet
	Secret   string // first element of all paths, which others can't guess
}

// Equal reports whether two identities are the same.
func (i Identity) Equal(other Identity) bool {
	return i.Secret == other.Secret && bytes.Equal(i.CABundle, other.CABundle)
}

// Endpoint is the address of the webhook server, as the API server uses it.
type Endpoint struct {
	// Client is its address. The path and the CABundle are not used.
	Client admissionv1.WebhookClientConfig

	// Identity is published whenever the certificate changes.
	Identity *latest.Value[Identity]
}

// Current returns the identity now; it is zero until there is a certificate.
func (e Endpoint) Current() Identity {
	identity, _ := e.Identity.Load()
	return identity
}

// At returns the address of one webhook by its path; ok is false until there is a
// certificate.
func (e Endpoint) At(path string) (config admissionv1.WebhookClientConfig, ok bool) {
	identity := e.Current()
	config = *e.Client.DeepCopy()
	config.CABundle = identity.CABundle
	path = "/" + identity.Secret + path
	if config.Service != nil {
		config.Service.Path = &path
	} else if to, err := url.Parse(ptr.Deref(config.URL, "")); err == nil {
		to.Path = path
		config.URL = ptr.To(to.String())
	}
	return config, len(identity.CABundle) != 0
}
