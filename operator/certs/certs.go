// Package certs has the certificate of the webhook: in a Secret, where cert-controller
// makes it, renews it, and puts what it is signed by into the webhook's configuration; or
// in a folder, where somebody else does all that.
//
// It serves nothing. Whoever does takes the certificate from here at each handshake, so
// that a renewed one counts at once; the file that cert-controller waits for is of no
// other use.
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
)

const (
	authority   = "gleaner-ca"
	createLimit = 10 * time.Second // for making sure that there is a Secret

	certKey, privateKey, authorityKey = "tls.crt", "tls.key", "ca.crt"
)

// Options say what a certificate is for. All fields but Folder are required by Add; by
// Follow Host, Folder, OnChange and Log are.
type Options struct {
	Client        kubernetes.Interface
	Namespace     string // of the Secret
	Secret        string // its name
	Host          string // that the API server knows the webhook by
	Configuration string // name of the webhook's configuration
	Folder        string // to put a folder into, empty: where temporary files go; or to follow
	OnChange      func() // is called when there is another certificate
	Log           logr.Logger
}

// Certificates has the certificate of the webhook, as soon as there is one.
type Certificates struct {
	options Options
	folder  string
	seen    chan struct{} // closed once cert-controller has seen what is in the folder
	ready   chan struct{} // closed once there is a certificate
	once    sync.Once     // closes it
	now     atomic.Pointer[pair]
	why     atomic.Pointer[error] // there is none, or no good one
}

type pair struct {
	certificate tls.Certificate
	authority   []byte
	secrets     []string // see Secret; of certificates before, too, the latest last
}

// mostSecrets bounds the secrets that count beside the latest: the API server is told of
// a new one a moment later, by one replica.
const mostSecrets = 3

// errNone is why nothing is served yet.
var errNone = errors.New("there is no certificate yet")

// Add has a manager keep a certificate. It makes sure that there is a Secret, which
// cert-controller takes for granted.
func Add(mgr manager.Manager, o Options) (*Certificates, error) {
	ctx, cancel := context.WithTimeout(context.Background(), createLimit)
	defer cancel()
	c := &Certificates{options: o, seen: make(chan struct{}), ready: make(chan struct{})}
	if err := c.ensure(ctx); err != nil {
		return nil, err
	}
	var err error
	if c.folder, err = os.MkdirTemp(o.Folder, "gleaner-certs-"); err != nil {
		return nil, fmt.Errorf("make a folder for the certificate: %w", err)
	}
	if err := mgr.Add(c); err != nil {
		return nil, fmt.Errorf("watch the certificate: %w", err)
	}
	if err := rotator.AddRotator(mgr, &rotator.CertRotator{
		SecretKey: types.NamespacedName{Namespace: o.Namespace, Name: o.Secret},
		CertDir:   c.folder, CAName: authority, CAOrganization: "gleaner.dev", DNSName: o.Host,
		IsReady: c.seen, ControllerName: "gleaner-certs",
		Webhooks: []rotator.WebhookInfo{{Name: o.Configuration, Type: rotator.Validating}},
	}); err != nil {
		return nil, fmt.Errorf("keep the certificate: %w", err)
	}
	return c, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: any replica answers.
func (c *Certificates) NeedLeaderElection() bool { return false }

// Start follows the Secret until ctx ends.
func (c *Certificates) Start(ctx context.Context) error {
	var tidying sync.WaitGroup
	tidying.Go(func() { c.tidy(ctx) })
	defer tidying.Wait()
	o := c.options
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: cache.NewListWatchFromClient(o.Client.CoreV1().RESTClient(), "secrets", o.Namespace, fields.OneTermEqualSelector("metadata.name", o.Secret)),
		ObjectType:    &corev1.Secret{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    c.take,
			UpdateFunc: func(_, now any) { c.take(now) },
			DeleteFunc: func(any) {
				if err := c.ensure(ctx); err != nil && ctx.Err() == nil {
					o.Log.Error(err, "The certificate's Secret is gone: going on with the one at hand")
				}
			},
		},
	})
	informer.RunWithContext(ctx)
	return nil
}

// tidy removes the folder as soon as nobody needs it: a process that is killed removes
// nothing.
func (c *Certificates) tidy(ctx context.Context) {
	select {
	case <-c.seen:
	case <-ctx.Done():
	}
	if err := os.RemoveAll(c.folder); err != nil {
		c.options.Log.Error(err, "A folder that nobody needs is still there", "folder", c.folder)
	}
}

// show puts the certificate where cert-controller waits for it.
func (c *Certificates) show(certificate []byte) error {
	err := os.WriteFile(filepath.Join(c.folder, certKey), certificate, 0o600)
	select {
	case <-c.seen:
		return nil // nobody waits any more
	default:
		return err
	}
}

// ensure makes an empty Secret if there is none.
func (c *Certificates) ensure(ctx context.Context) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{
		Name: c.options.Secret, Namespace: c.options.Namespace, Labels: map[string]string{"app.kubernetes.io/managed-by": "gleaner"},
	}}
	_, err := c.options.Client.CoreV1().Secrets(c.options.Namespace).Create(ctx, secret, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create Secret %s/%s for the webhook's certificate: %w", c.options.Namespace, c.options.Secret, err)
	}
	return nil
}

// take takes the certificate out of the Secret, if there is a good one.
func (c *Certificates) take(object any) {
	secret, ok := object.(*corev1.Secret)
	if !ok || len(secret.Data[certKey]) == 0 {
		return // it is still to be made
	}
	certificate, err := tls.X509KeyPair(secret.Data[certKey], secret.Data[privateKey])
	if err == nil {
		err = c.show(secret.Data[certKey])
	}
	if err != nil {
		c.options.Log.Error(err, "The webhook's certificate is no good: going on with the one at hand", "secret", secret.Name)
		return
	}
	c.set(pair{certificate: certificate, authority: secret.Data[authorityKey]})
}

func (c *Certificates) set(p pair) {
	now := secretOf(p.certificate)
	if before := c.now.Load(); before != nil {
		p.secrets = slices.DeleteFunc(slices.Clone(before.secrets), func(s string) bool { return s == now })
	}
	p.secrets = append(p.secrets[max(0, len(p.secrets)-mostSecrets):], now)
	c.now.Store(&p)
	c.once.Do(func() { close(c.ready) })
	c.options.OnChange()
}

// secretOf is what nobody can tell without the private key of a certificate.
func secretOf(certificate tls.Certificate) string {
	key, err := x509.MarshalPKCS8PrivateKey(certificate.PrivateKey)
	if err != nil {
		panic(err) // it has been read from PEM just now
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte("who asks the webhook of gleaner.dev"))
	return hex.EncodeToString(mac.Sum(nil)[:16])
}

// Secret is what the API server begins its paths with, so that nobody else can ask the
// webhook in its place. It is the same for all who have the certificate; "" while there
// is none.
func (c *Certificates) Secret() string {
	if p := c.now.Load(); p != nil {
		return p.secrets[len(p.secrets)-1]
	}
	return ""
}

// Knows reports whether that is the Secret, or was until a moment ago.
func (c *Certificates) Knows(secret string) bool {
	p := c.now.Load()
	return p != nil && slices.ContainsFunc(p.secrets, func(s string) bool { return hmac.Equal([]byte(s), []byte(secret)) })
}

// Ready is closed once there is a certificate.
func (c *Certificates) Ready() <-chan struct{} { return c.ready }

// Certificate is the one to show now.
func (c *Certificates) Certificate() (*tls.Certificate, error) {
	if p := c.now.Load(); p != nil {
		return &p.certificate, nil
	}
	if why := c.why.Load(); why != nil {
		return nil, *why
	}
	return nil, errNone
}

// Authority is what the certificate is signed by, in PEM; nil while there is none.
func (c *Certificates) Authority() []byte {
	if p := c.now.Load(); p != nil {
		return p.authority
	}
	return nil
}
