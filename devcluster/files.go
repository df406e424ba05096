package devcluster

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// layout names every file of a cluster.
type layout struct {
	root  string
	claim *os.File // of a root in the temporary folder, which is ours alone
	logs  string   // a folder
	keep  bool     // logs are outside of root and outlive the cluster
}

func newLayout(opts Options) (layout, error) {
	l := layout{root: opts.Dir, logs: opts.LogDir, keep: opts.LogDir != ""}
	var err error
	if l.root == "" {
		sweep()
		if l.root, err = os.MkdirTemp("", tempPattern); err != nil {
			return layout{}, fmt.Errorf("create cluster folder: %w", err)
		}
		if l.claim, err = claimFolder(l.root); err != nil {
			return layout{}, errors.Join(err, os.RemoveAll(l.root))
		}
	}
	if l.root, err = filepath.Abs(l.root); err != nil {
		return layout{}, fmt.Errorf("resolve cluster folder: %w", err)
	}
	if !l.keep {
		l.logs = filepath.Join(l.root, "logs")
	}
	if l.logs, err = filepath.Abs(l.logs); err != nil {
		return layout{}, fmt.Errorf("resolve log folder: %w", err)
	}
	if err := l.create(); err != nil {
		return layout{}, errors.Join(err, l.remove())
	}
	return l, nil
}

func (l layout) create() error {
	for _, dir := range []string{l.root, l.pki(), l.logs} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("create cluster folder: %w", err)
		}
	}
	return nil
}

func (l layout) pki() string        { return filepath.Join(l.root, "pki") }
func (l layout) data() string       { return filepath.Join(l.root, "etcd") }
func (l layout) kubeconfig() string { return filepath.Join(l.root, "kubeconfig") }
func (l layout) managerKubeconfig() string {
	return filepath.Join(l.pki(), "controller-manager.kubeconfig")
}
func (l layout) userKubeconfig(user string) string {
	return filepath.Join(l.pki(), url.PathEscape(user)+".kubeconfig")
}
func (l layout) kubectlCache() string { return filepath.Join(l.root, "kubectl-cache") }
func (l layout) log(component string) string {
	return filepath.Join(l.logs, component+".log")
}
func (l layout) cert(name string) string { return filepath.Join(l.pki(), name+".crt") }
func (l layout) key(name string) string  { return filepath.Join(l.pki(), name+".key") }

// removeData removes everything except the logs.
func (l layout) removeData() error {
	defer l.unclaim()
	var errs []error
	for _, path := range []string{l.data(), l.pki(), l.kubectlCache(), l.kubeconfig(), filepath.Join(l.root, claimName)} {
		errs = append(errs, os.RemoveAll(path))
	}
	return errors.Join(errs...)
}

func (l layout) remove() error {
	if l.claim != nil {
		defer l.unclaim()
		return os.RemoveAll(l.root)
	}
	err := l.removeData()
	if !l.keep {
		err = errors.Join(err, os.RemoveAll(l.logs))
	}
	return err
}

func (l layout) unclaim() {
	if l.claim != nil {
		_ = l.claim.Close() // nothing was written to it
	}
}

func (l layout) writePair(name string, pair keyPair) error {
	if err := os.WriteFile(l.cert(name), pair.cert, 0o600); err != nil {
		return fmt.Errorf("write certificate: %w", err)
	}
	if err := os.WriteFile(l.key(name), pair.key, 0o600); err != nil {
		return fmt.Errorf("write key: %w", err)
	}
	return nil
}

// Names of the key pairs in the pki folder.
const (
	caName             = "ca" // the certificate only
	servingName        = "serving"
	etcdClientName     = "etcd-client"
	frontProxyName     = "front-proxy-client"
	serviceAccountName = "service-account"
)

// writePKI makes what the components read at start.
func (l layout) writePKI(ca *authority) error {
	if err := os.WriteFile(l.cert(caName), ca.pem, 0o600); err != nil {
		return fmt.Errorf("write CA: %w", err)
	}
	serving, err := ca.serving("kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
	if err != nil {
		return err
	}
	etcdClient, err := ca.client("kube-apiserver-etcd-client")
	if err != nil {
		return err
	}
	frontProxy, err := ca.client("front-proxy-client")
	if err != nil {
		return err
	}
	private, public, err := newSigningKey()
	if err != nil {
		return err
	}
	return errors.Join(
		l.writePair(servingName, serving),
		l.writePair(etcdClientName, etcdClient),
		l.writePair(frontProxyName, frontProxy),
		l.writePair(serviceAccountName, keyPair{cert: public, key: private}),
	)
}

// WriteKubeconfig writes a kubeconfig file with the address, the CA and the certificate or
// token of a config. It is atomic, as kubectl may read the file at any time.
func WriteKubeconfig(path string, cfg *rest.Config) error {
	const name = "devcluster"
	file := clientcmdapi.NewConfig()
	file.Clusters[name] = &clientcmdapi.Cluster{Server: cfg.Host, CertificateAuthorityData: cfg.CAData}
	file.AuthInfos[name] = &clientcmdapi.AuthInfo{ClientCertificateData: cfg.CertData, ClientKeyData: cfg.KeyData, Token: cfg.BearerToken}
	file.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	file.CurrentContext = name
	data, err := clientcmd.Write(*file)
	if err != nil {
		return fmt.Errorf("encode kubeconfig: %w", err)
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	if err := os.Rename(path+".new", path); err != nil {
		return fmt.Errorf("write kubeconfig: %w", err)
	}
	return nil
}
