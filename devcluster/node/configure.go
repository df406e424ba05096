package node

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"text/template"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/freeport"
)

// nodesGroup is the group of every kubelet.
const nodesGroup = "system:nodes"

// The files of a node, by their name in its folder.
var (
	//go:embed files/start.sh
	startScript string
	//go:embed files/containerd.toml
	containerdConfig string
	//go:embed files/network.conflist
	networkConfig string
	//go:embed files/kubelet.yaml
	kubeletConfig string
)

// settings are what the files are filled with.
type settings struct {
	Dir     string
	Plugins string // folder of the CNI plugins
	Cgroup  string // that all containers are below
	Port    int    // of the kubelet
	Subnet  string // of Pods
	Image   string // of sandboxes

	WithoutCollection bool
}

// configure writes the node's files and returns the arguments of the shell.
func (n *Node) configure(cluster *devcluster.Cluster) ([]string, error) {
	if hidden, ok := isUnder(n.folder, hiddenFolders); ok {
		return nil, fmt.Errorf("%s is below %s, which nodes hide from themselves: set TMPDIR or Options.Dir to a folder elsewhere", n.folder, hidden)
	}
	port, err := freeport.Get()
	if err != nil {
		return nil, err
	}
	subnet, err := freeSubnet()
	if err != nil {
		return nil, err
	}
	n.gateway = subnet.Addr().Next().String() // as host-local has it
	sweepCgroups()
	n.cgroup = fmt.Sprintf("%s%d-%d", cgroupPrefix, os.Getpid(), port)
	s := settings{Dir: n.folder, Plugins: n.tools.plugins, Cgroup: n.cgroup, Port: port, Subnet: subnet.String(), Image: Linger, WithoutCollection: n.options.WithoutCollection}
	for name, text := range map[string]string{
		"start.sh":             startScript,
		"containerd.toml":      containerdConfig,
		"cni/10-pods.conflist": networkConfig,
		"kubelet.yaml":         kubeletConfig,
	} {
		if err := write(filepath.Join(n.folder, name), text, s); err != nil {
			return nil, err
		}
	}
	kubeconfig, err := cluster.KubeconfigFor("system:node:"+n.name, nodesGroup)
	if err != nil {
		return nil, err
	}
	kubelet := n.tools.kubelet
	if n.options.RuntimeOnly {
		kubelet = ""
	}
	return []string{
		filepath.Join(n.folder, "start.sh"), n.folder, strings.Join(hiddenFolders, " "), n.cgroup, n.name, kubeconfig,
		strconv.FormatInt(n.options.ImageFilesystem, 10), n.kubeletFlags(), n.tools.containerd, n.log(cluster, "containerd"), kubelet, n.log(cluster, devcluster.Kubelet),
	}, nil
}

// kubeletFlags are settings that have no field in the kubelet's configuration.
func (n *Node) kubeletFlags() string {
	if n.options.WithoutCollection {
		return "--maximum-dead-containers-per-container=1000"
	}
	return ""
}

func write(path, text string, s settings) error {
	filled, err := template.New(filepath.Base(path)).Parse(text)
	if err != nil {
		return fmt.Errorf("parse node file: %w", err)
	}
	var b bytes.Buffer
	if err := filled.Execute(&b, s); err != nil {
		return fmt.Errorf("fill node file: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("create node folder: %w", err)
	}
	if err := os.WriteFile(path, b.Bytes(), 0o600); err != nil {
		return fmt.Errorf("write node file: %w", err)
	}
	return nil
}

// admit gives kubelets their usual rights. Clusters leave that to the Node
// authorizer, which a development control plane does not have.
func (n *Node) admit(ctx context.Context, client kubernetes.Interface) error {
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "devcluster-nodes"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: nodesGroup}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node"},
	}
	_, err := client.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("bind role of nodes: %w", err)
	}
	return nil
}
