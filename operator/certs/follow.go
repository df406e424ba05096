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

// lookInterval is between two looks at a folder. A certwatcher does not follow what a
// certificate is signed by, nor files that are not there yet.
const lookInterval = time.Second

// Follow has a manager take the certificate from Options.Folder, where somebody else
// puts it and renews it: tls.crt, tls.key and ca.crt, as cert-manager has them in a
// Secret.
func Follow(mgr manager.Manager, o Options) (*Certificates, error) {
	c := &Certificates{options: o, ready: make(chan struct{})}
	if err := mgr.Add(&follower{Certificates: c}); err != nil {
		return nil, fmt.Errorf("follow the certificate: %w", err)
	}
	return c, nil
}

// follower follows a folder.
type follower struct {
	*Certificates
	taken [3][]byte // what the files held that the certificate is from
}

// Start follows the folder until ctx ends. It looks each second, as files in a Secret's
// volume are replaced by way of a link, all at once, and ca.crt is one of them.
func (f *follower) Start(ctx context.Context) error {
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		f.look()
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (f *follower) path(name string) string { return filepath.Join(f.options.Folder, name) }

// look takes what is in the folder, if it is new and good.
func (f *follower) look() {
	var now [3][]byte
	var err error
	for i, name := range []string{certKey, privateKey, authorityKey} {
		if now[i], err = os.ReadFile(f.path(name)); err != nil {
			break
		}
	}
	if err == nil && equal(now, f.taken) {
		return
	}
	var p pair
	if err == nil {
		p, err = f.check(now)
	}
	if err == nil {
		f.taken = now
		f.why.Store(nil)
		f.set(p)
		f.options.Log.Info("The webhook has another certificate", "folder", f.options.Folder, "until", p.certificate.Leaf.NotAfter)
		return
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w: put tls.crt, tls.key and ca.crt there, as in a Secret of cert-manager, or leave --webhook-cert-dir out", err)
	}
	err = fmt.Errorf("take the webhook's certificate from %s: %w", f.options.Folder, err)
	if before := f.why.Swap(&err); before == nil || (*before).Error() != err.Error() {
		f.options.Log.Error(err, "The webhook's certificate is no good", "goingOn", f.now.Load() != nil)
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

// check says what would keep the API server from believing in a certificate.
func (f *follower) check(files [3][]byte) (p pair, err error) {
	if p.certificate, err = tls.X509KeyPair(files[0], files[1]); err != nil {
		return p, fmt.Errorf("tls.crt and tls.key: %w", err)
	}
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM(files[2]) {
		return p, errors.New("ca.crt has no certificate in PEM: have it hold what tls.crt is signed by")
	}
	intermediates := x509.NewCertPool()
	for _, der := range p.certificate.Certificate[1:] {
		if c, err := x509.ParseCertificate(der); err == nil {
			intermediates.AddCert(c)
		}
	}
	_, err = p.certificate.Leaf.Verify(x509.VerifyOptions{DNSName: f.options.Host, Roots: roots, Intermediates: intermediates})
	if err != nil {
		return p, fmt.Errorf("tls.crt is to be for %s and signed by what is in ca.crt: %w", f.options.Host, err)
	}
	p.authority = files[2]
	return p, nil
}

// NeedLeaderElection implements manager.LeaderElectionRunnable: any replica answers.
func (f *follower) NeedLeaderElection() bool { return false }
