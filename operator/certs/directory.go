package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// pollInterval is the interval between reads of the directory. A certwatcher watches neither
// the CA bundle nor files that do not exist yet.
const pollInterval = time.Second

// AddFromDirectory adds Certificates to a manager, backed by files in Options.Folder that another
// tool creates and renews: tls.crt, tls.key and ca.crt, as in a Secret of cert-manager.
func AddFromDirectory(mgr manager.Manager, o Options) (*Certificates, error) {
	c := &Certificates{options: o, ready: make(chan struct{})}
	if err := mgr.Add(&poller{Certificates: c}); err != nil {
		return nil, fmt.Errorf("follow certificate directory: %w", err)
	}
	return c, nil
}

// A poller polls a directory.
type poller struct {
	*Certificates
	loaded [3][]byte // content of the files of the current certificate
}

// Start polls the directory until ctx ends, every second: all files in a Secret volume,
// including ca.crt, are replaced together by changing a symbolic link.
func (f *poller) Start(ctx context.Context) error {
	tick := time.NewTicker(pollInterval)
	defer tick.Stop()
	for {
		f.reload()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (f *poller) path(name string) string { return filepath.Join(f.options.Dir, name) }

// reload loads the files if they have changed and are valid.
func (f *poller) reload() {
	var now [3][]byte
	var err error
	for i, name := range []string{certKey, privateKey, caKey} {
		if now[i], err = os.ReadFile(f.path(name)); err != nil {
			break
		}
	}
	if err == nil && equal(now, f.loaded) {
		return
	}
	var p keyPair
	if err == nil {
		p, err = f.verify(now)
	}
	if err == nil {
		f.loaded = now
		f.err.Store(nil)
		f.set(p)
		f.options.Log.Info("Webhook certificate loaded", "directory", f.options.Dir, "expires", p.certificate.Leaf.NotAfter)
		return
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: provide tls.crt, tls.key and ca.crt, as in a Secret of cert-manager, or remove --webhook-cert-dir", err)
	}
	err = fmt.Errorf("load webhook certificate from %s: %w", f.options.Dir, err)
	if before := f.err.Swap(&err); before == nil || (*before).Error() != err.Error() {
		f.options.Log.Error(err, "Webhook certificate is invalid", "usingPrevious", f.current.Load() != nil)
	}
}

func equal(a, b [3][]byte) bool {
	for i := range a {
		if !bytes.Equal(a[i], b[i]) {
			return false
		}
	}
	return true
}

// verify parses the files, and returns an error if the API server would not trust the
// certificate.
func (f *poller) verify(files [3][]byte) (p keyPair, err error) {
	if p.certificate, err = tls.X509KeyPair(files[0], files[1]); err != nil {
		return p, fmt.Errorf("tls.crt and tls.key: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(files[2]) {
		return p, errors.New("ca.crt contains no PEM certificate: provide the CA that signed tls.crt")
	}
	intermediates := x509.NewCertPool()
	for _, der := range p.certificate.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(c)
		}
	}
	_, err = p.certificate.Leaf.Verify(x509.VerifyOptions{DNSName: f.options.DNSName, Roots: roots, Intermediates: intermediates})
	if err != nil {
		return p, fmt.Errorf("tls.crt must be valid for %s and signed by ca.crt: %w", f.options.DNSName, err)
	}
	p.caBundle = files[2]
	return p, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: all replicas serve.
func (f *poller) NeedLeaderElection() bool { return false }
