package devcluster

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"k8s.io/client-go/rest"
)

// RESTConfig gives a config for the cluster's admin, without a client-side
// rate limit. The caller may change it.
func (c *Cluster) RESTConfig() *rest.Config { return rest.CopyConfig(c.admin) }

// ConfigFor gives a config for a user of these groups, who has a client
// certificate of his own and only the rights that RBAC gives him.
func (c *Cluster) ConfigFor(user string, groups ...string) (*rest.Config, error) {
	pair, err := c.ca.client(user, groups...)
	if err != nil {
		return nil, err
	}
	return &rest.Config{
		Host: fmt.Sprintf("https://%s:%d", loopback, c.ports.api),
		QPS:  -1,
		TLSClientConfig: rest.TLSClientConfig{
			CAData:   bytes.Clone(c.ca.pem),
			CertData: pair.cert,
			KeyData:  pair.key,
		},
	}, nil
}

// ControllerManagerURL is where the controller manager serves its health, its metrics
// and what it shows of itself. The CA of RESTConfig proves it.
func (c *Cluster) ControllerManagerURL() string {
	return fmt.Sprintf("https://%s:%d", loopback, c.ports.manager)
}

// Kubeconfig is the path of the admin's kubeconfig. Only this user can read it.
func (c *Cluster) Kubeconfig() string { return c.files.kubeconfig() }

// KubeconfigFor writes a kubeconfig for the user of ConfigFor and returns its path.
func (c *Cluster) KubeconfigFor(user string, groups ...string) (string, error) {
	config, err := c.ConfigFor(user, groups...)
	if err != nil {
		return "", err
	}
	path := c.files.userKubeconfig(user)
	return path, WriteKubeconfig(path, config)
}

// KubectlPath is the program that Kubectl runs.
func (c *Cluster) KubectlPath() string { return c.bin.Kubectl }

// KubectlCache is the directory for $KUBECACHEDIR. By default kubectl keeps what a server serves
// for six hours in the home directory, under the server's address, and this control plane may
// have the address of one that has ended.
func (c *Cluster) KubectlCache() string { return c.files.kubectlCache() }

// Kubectl runs kubectl as the admin and returns what it printed to standard
// output. The error holds what it printed to standard error.
func (c *Cluster) Kubectl(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, c.bin.Kubectl, args...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.Kubeconfig(), "KUBECACHEDIR="+c.KubectlCache())
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return stdout.String(), nil
}

// ServingCertificate makes a certificate for a server on loopback, such as an
// admission webhook, and gives the CA bundle that proves it. Names add to
// 127.0.0.1 and localhost.
func (c *Cluster) ServingCertificate(names ...string) (cert tls.Certificate, caPEM []byte, err error) {
	pair, err := c.ca.serving(names...)
	if err != nil {
		return tls.Certificate{}, nil, err
	}
	cert, err = pair.tls()
	return cert, bytes.Clone(c.ca.pem), err
}
