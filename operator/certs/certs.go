// Package certs provides the certificate of the webhook: from a Secret, where
// cert-controller creates and renews it, and writes its CA bundle into the webhook
// configuration; or from a directory, where another tool such as cert-manager does so.
//
// It serves nothing. The webhook server gets the certificate from here for each handshake,
// so that a renewed one is used immediately. The file that cert-controller waits for has
// no other use.
package certs

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/open-policy-agent/cert-controller/pkg/rotator"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gleaner-dev/gleaner/operator/latest"
	"github.com/gleaner-dev/gleaner/operator/webhook"
)

const (
	caName        = "gleaner-ca"
	createTimeout = 10 * time.Second // for creating the Secret

	certKey, privateKey, caKey = "tls.crt", "tls.key", "ca.crt"
)

// Options configure Certificates. Add requires all fields but Folder; Follow requires Host,
// Folder, Identity and Log.
type Options struct {
	Client               kubernetes.Interface
	Namespace            string                          // of the Secret
	SecretName           string                          // its name
	DNSName              string                          // DNS name of the webhook
	WebhookConfiguration string                          // name of the webhook configuration
	Dir                  string                          // Add: parent of its temporary directory, empty: the default; Follow: the directory to read
	Identity             *latest.Value[webhook.Identity] // published when the certificate has changed
	Log                  logr.Logger
}

// Certificates provides the current certificate of the webhook.
type Certificates struct {
	options      Options
	dir          string
	rotatorReady chan struct{} // closed when cert-controller has read the file
	ready        chan struct{} // closed when a certificate is available
	closeReady   sync.Once     // closes ready
	current      atomic.Pointer[keyPair]
	err          atomic.Pointer[error] // no valid certificate is available
}

type keyPair struct {
	certificate tls.Certificate
	caBundle    []byte
	secrets     []string // see Secret; includes those of former certificates, the latest last
}

// maxFormerSecrets is the maximum number of former secrets that are accepted: the leader
// installs a new secret in the API server a moment later.
const maxFormerSecrets = 3

// errNoCertificate means that no certificate was loaded yet.
var errNoCertificate = errors.New("no certificate available yet")

// AddFromSecret adds Certificates to a manager, backed by a Secret. It creates the Secret if it is
// missing, since cert-controller requires it.
func AddFromSecret(mgr manager.Manager, o Options) (*Certificates, error) {
	ctx, cancel := context.WithTimeout(context.Background(), createTimeout)
	defer cancel()
	c := &Certificates{options: o, rotatorReady: make(chan struct{}), ready: make(chan struct{})}
	if err := c.ensureSecret(ctx); err != nil {
		return nil, err
	}
	var err error
	if c.dir, err = os.MkdirTemp(o.Dir, "gleaner-certs-"); err != nil {
		return nil, fmt.Errorf("create certificate directory: %w", err)
	}
	if err := mgr.Add(c); err != nil {
		return nil, fmt.Errorf("watch certificate Secret: %w", err)
	}
	if err := rotator.AddRotator(mgr, &rotator.CertRotator{
		SecretKey: types.NamespacedName{Namespace: o.Namespace, Name: o.SecretName},
		CertDir:   c.dir, CAName: caName, CAOrganization: "gleaner.dev", DNSName: o.DNSName,
		IsReady: c.rotatorReady, ControllerName: "gleaner-certs",
		Webhooks: []rotator.WebhookInfo{{Name: o.WebhookConfiguration, Type: rotator.Validating}},
	}); err != nil {
		return nil, fmt.Errorf("add certificate rotator: %w", err)
	}
	return c, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: all replicas serve.
func (c *Certificates) NeedLeaderElection() bool { return false }

// Start watches the Secret until ctx ends.
func (c *Certificates) Start(ctx context.Context) error {
	var cleanup sync.WaitGroup
	cleanup.Go(func() { c.removeDir(ctx) })
	defer cleanup.Wait()
	o := c.options
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(o.Client.CoreV1().RESTClient(), "secrets", o.Namespace, fields.OneTermEqualSelector("metadata.name", o.SecretName)),
		ObjectType:    &corev1.Secret{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    c.load,
			UpdateFunc: func(_, now any) { c.load(now) },
			DeleteFunc: func(any) {
				if err := c.ensureSecret(ctx); err != nil && ctx.Err() == nil {
					o.Log.Error(err, "Creating the deleted webhook certificate Secret failed, still using the current certificate")
				}
			},
		},
	})
	informer.RunWithContext(ctx)
	return nil
}

// removeDir removes the directory as soon as cert-controller has read the file: a process that is
// killed later could not.
func (c *Certificates) removeDir(ctx context.Context) {
	select {
	case <-c.rotatorReady:
	case <-ctx.Done():
	}
	if err := os.RemoveAll(c.dir); err != nil {
		c.options.Log.Error(err, "Removing temporary certificate directory failed", "directory", c.dir)
	}
}

// writeFile writes the certificate to the file that cert-controller waits for.
func (c *Certificates) writeFile(certificate []byte) error {
	err := os.WriteFile(filepath.Join(c.dir, certKey), certificate, 0o600)
	select {
	case <-c.rotatorReady:
		return nil // no longer needed
	default:
		return err
	}
}

// ensureSecret creates an empty Secret if it is missing.
func (c *Certificates) ensureSecret(ctx context.Context) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name: c.options.SecretName, Namespace: c.options.Namespace, Labels: map[string]string{"app.kubernetes.io/managed-by": "gleaner"},
	}}
	_, err := c.options.Client.CoreV1().Secrets(c.options.Namespace).Create(ctx, secret, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Secret %s/%s for the webhook certificate: %w", c.options.Namespace, c.options.SecretName, err)
	}
	return nil
}

// load loads the certificate from the Secret if it is valid.
func (c *Certificates) load(object any) {
	secret, ok := object.(*corev1.Secret)
	if !ok || len(secret.Data[certKey]) == 0 {
		return // not created yet
	}
	certificate, err := tls.X509KeyPair(secret.Data[certKey], secret.Data[privateKey])
	if err == nil {
		err = c.writeFile(secret.Data[certKey])
	}
	if err != nil {
		c.options.Log.Error(err, "Webhook certificate is invalid, still using the current one", "secret", secret.Name)
		return
	}
	c.set(keyPair{certificate: certificate, caBundle: secret.Data[caKey]})
}

func (c *Certificates) set(p keyPair) {
	now := deriveSecret(p.certificate)
	if before := c.current.Load(); before != nil {
		p.secrets = slices.DeleteFunc(slices.Clone(before.secrets), func(s string) bool { return s == now })
	}
	p.secrets = append(p.secrets[max(0, len(p.secrets)-maxFormerSecrets):], now)
	c.current.Store(&p)
	c.closeReady.Do(func() { close(c.ready) })
	c.options.Identity.Store(webhook.Identity{CABundle: c.CABundle(), Secret: c.PathSecret()})
}

// deriveSecret derives a secret from the private key of a certificate.
func deriveSecret(certificate tls.Certificate) string {
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		panic(err) // it was just parsed from PEM
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("who asks the webhook of gleaner.dev"))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// PathSecret returns the path prefix of webhook requests, which only the API server knows, so
// that no other client can call the webhook. It is the same for all replicas with the same
// certificate; "" while no certificate is available.
func (c *Certificates) PathSecret() string {
	if p := c.current.Load(); p != nil {
		return p.secrets[len(p.secrets)-1]
	}
	return ""
}

// ValidSecret reports whether secret is the Secret, or was one recently.
func (c *Certificates) ValidSecret(secret string) bool {
	p := c.current.Load()
	return p != nil && slices.ContainsFunc(p.secrets, func(s string) bool { return hmac.Equal([]byte(s), []byte(secret)) })
}

// Ready returns a channel that is closed when a certificate is available.
func (c *Certificates) Ready() <-chan struct{} { return c.ready }

// Certificate returns the current certificate.
func (c *Certificates) Certificate() (*tls.Certificate, error) {
	if p := c.current.Load(); p != nil {
		return &p.certificate, nil
	}
	if err := c.err.Load(); err != nil {
		return nil, *err
	}
	return nil, errNoCertificate
}

// CABundle returns the CA bundle of the certificate in PEM; nil while none is available.
func (c *Certificates) CABundle() []byte {
	if p := c.current.Load(); p != nil {
		return p.caBundle
	}
	return nil
}
