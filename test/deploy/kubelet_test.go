package deploy

import (
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/devtest"
)

const accountFolder = "/var/run/secrets/kubernetes.io/serviceaccount"

// pod is created from the Deployment's template as a kubelet would, as far as this machine
// allows: a root with the files of the image, the account's token, and volumes.
type pod struct {
	root        string
	spec        corev1.PodSpec
	args        []string
	environment []string
	confined    bool // to the root, as the image's user; otherwise it has access to the whole machine
}

// newPod creates a pod in a folder with the files of the image.
func newPod(t *testing.T, cluster *devcluster.Cluster, root string, confined bool) pod {
	t.Helper()
	client := kubernetes.NewForConfigOrDie(cluster.RESTConfig())
	deployment, err := client.AppsV1().Deployments(namespace).Get(t.Context(), "gleaner", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	p := pod{root: root, spec: deployment.Spec.Template.Spec, confined: confined}
	container := p.spec.Containers[0]
	p.args = slices.Clone(container.Args)
	p.mount(t, client, container.VolumeMounts)
	p.mountToken(t, cluster)
	p.setVariables(t, client, container.EnvFrom)
	return p
}

// setVariables sets the variables of Secrets, and replaces them in the arguments.
func (p *pod) setVariables(t *testing.T, client kubernetes.Interface, sources []corev1.EnvFromSource) {
	t.Helper()
	for _, source := range sources {
		secret, err := client.CoreV1().Secrets(namespace).Get(t.Context(), source.SecretRef.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range secret.Data {
			p.environment = append(p.environment, name+"="+string(value))
			for i := range p.args {
				p.args[i] = strings.ReplaceAll(p.args[i], "$("+name+")", string(value))
			}
		}
	}
}

// mount creates the volumes. Without confinement, their paths are replaced in the arguments.
func (p *pod) mount(t *testing.T, client kubernetes.Interface, mounts []corev1.VolumeMount) {
	t.Helper()
	for _, m := range mounts {
		folder := filepath.Join(p.root, m.MountPath)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		volume := p.spec.Volumes[slices.IndexFunc(p.spec.Volumes, func(v corev1.Volume) bool { return v.Name == m.Name })]
		switch {
		case volume.EmptyDir != nil, volume.PersistentVolumeClaim != nil:
			if claim := volume.PersistentVolumeClaim; claim != nil {
				if _, err := client.CoreV1().PersistentVolumeClaims(namespace).Get(t.Context(), claim.ClaimName, metav1.GetOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.Chmod(folder, 0o777); err != nil {
				t.Fatal(err)
			}
		case volume.Secret != nil:
			secret, err := client.CoreV1().Secrets(namespace).Get(t.Context(), volume.Secret.SecretName, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for name, content := range secret.Data {
				writeFile(t, filepath.Join(folder, name), content, os.FileMode(*volume.Secret.DefaultMode))
			}
		default:
			t.Fatalf("unsupported volume %+v", volume)
		}
		for i := range p.args {
			if !p.confined {
				p.args[i] = strings.ReplaceAll(p.args[i], "="+m.MountPath, "="+folder)
				p.args[i] = strings.ReplaceAll(p.args[i], "=file://"+m.MountPath, "=file://"+folder)
			}
		}
	}
}

// mountToken mounts a token of the service account, as in a pod; without confinement,
// it writes a kubeconfig.
func (p *pod) mountToken(t *testing.T, cluster *devcluster.Cluster) {
	t.Helper()
	admin, secret := cluster.RESTConfig(), token(t, cluster, namespace, p.spec.ServiceAccountName)
	if p.confined {
		folder := filepath.Join(p.root, accountFolder)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		for name, content := range map[string][]byte{"token": []byte(secret), "ca.crt": admin.CAData, "namespace": []byte(namespace)} {
			writeFile(t, filepath.Join(folder, name), content, 0o444)
		}
		at, err := url.Parse(admin.Host)
		if err != nil {
			t.Fatal(err)
		}
		p.environment = []string{"KUBERNETES_SERVICE_HOST=" + at.Hostname(), "KUBERNETES_SERVICE_PORT=" + at.Port()}
		return
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	config := rest.AnonymousClientConfig(admin)
	config.BearerToken = secret
	if err := devcluster.WriteKubeconfig(path, config); err != nil {
		t.Fatal(err)
	}
	p.environment = []string{"KUBECONFIG=" + path}
	p.args = append(p.args, "--namespace="+namespace)
}

// setAddresses replaces the pod network by free addresses on loopback,
// and the webhook's Service by a URL.
func (p *pod) setAddresses(t *testing.T) (metrics, probes string) {
	t.Helper()
	metrics, probes = devtest.FreeAddress(t), devtest.FreeAddress(t)
	p.args = append(p.args, "--metrics-bind-address="+metrics, "--health-probe-bind-address="+probes)
	if slices.Contains(p.args, "--collector=companion") || slices.Contains(p.args, "--enable-webhooks") {
		webhook := devtest.FreeAddress(t)
		_, port, err := net.SplitHostPort(webhook)
		if err != nil {
			t.Fatal(err)
		}
		p.args = append(p.args, "--webhook-bind-address="+webhook, "--webhook-url=https://localhost:"+port+"/veto")
	}
	return metrics, probes
}

// imageRoot creates a folder with the image's files, with the command of this checkout.
func imageRoot(t *testing.T) (root string) {
	t.Helper()
	root = filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	command := filepath.Join(root, "gleaner")
	if err := os.Link(gleaner.Path(t), command); err != nil { // on a different file system
		if err := copyFile(gleaner.Path(t), command); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func copyFile(from, to string) error {
	source, err := os.Open(from)
	if err != nil {
		return err
	}
	defer source.Close()
	target, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

func writeFile(t *testing.T, path string, content []byte, mode os.FileMode) {
	t.Helper()
	if err := os.WriteFile(path, content, mode); err != nil {
		t.Fatal(err)
	}
}
