// Package node gives a development control plane a node: a real kubelet and a real
// containerd as child processes, so that Pods run, and end, in real containers.
//
// A node needs Linux, root, and the programs that Missing asks for. Its processes live
// in their own PID and mount namespaces. When these end, for whatever reason, all containers
// and mounts end with them. Its network is that of the machine; Pods have
// network namespaces and addresses, but nothing answers them: there are no Services, and no DNS.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/devcluster"
)

const (
	startTimeout = 2 * time.Minute // for Start when its context has no deadline
	pollInterval = 50 * time.Millisecond
	loopback     = "127.0.0.1"
	defaultName  = "node1"
)

// Options say how a node differs from the usual one. The zero value is one node.
type Options struct {
	// Name of the Node. Empty means node1.
	Name string

	// ImageFilesystem is the size in bytes of a file system in memory that has the images
	// and what containers write. 0 means the file system of the cluster's folder.
	ImageFilesystem int64

	// WithoutCollection has the kubelet remove no images, and no containers of Pods that
	// exist.
	WithoutCollection bool

	// RuntimeOnly runs containerd without a kubelet. There is no Node then, and Pods are made
	// through RuntimeEndpoint.
	RuntimeOnly bool

	// Progress receives one line per step. Nil means silence.
	Progress io.Writer
}

// A Node is a running kubelet with its containerd.
type Node struct {
	name    string
	folder  string
	cgroup  string
	gateway string // address of this machine in the network of Pods
	process *devcluster.Process
	tools   tools
	options Options
}

// Start runs a node and returns when it is Ready and has the image Linger. Stop it
// before the cluster. The context covers the start only.
func Start(ctx context.Context, cluster *devcluster.Cluster, opts Options) (*Node, error) {
	tools, err := findTools()
	if err != nil {
		return nil, err
	}
	if err := tools.build(ctx, opts.Progress); err != nil {
		return nil, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, startTimeout)
		defer cancel()
	}
	if opts.Name == "" {
		opts.Name = defaultName
	}
	if opts.Progress == nil {
		opts.Progress = io.Discard
	}
	started := time.Now()
	n := &Node{name: opts.Name, tools: tools, options: opts}
	if err := n.startProcesses(ctx, cluster); err != nil {
		return nil, errors.Join(fmt.Errorf("start node %s: %w", n.name, err), n.Stop())
	}
	fmt.Fprintf(opts.Progress, "devcluster: node %s is process %d, started in %s\n",
		n.name, n.process.PID(), time.Since(started).Round(100*time.Millisecond))
	return n, nil
}

func (n *Node) startProcesses(ctx context.Context, cluster *devcluster.Cluster) (err error) {
	if n.folder, err = cluster.Folder(n.name); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(cluster.RESTConfig())
	if err != nil {
		return err
	}
	if err := n.admit(ctx, client); err != nil {
		return err
	}
	args, err := n.configure(cluster)
	if err != nil {
		return err
	}
	n.process, err = cluster.Run(devcluster.Program{Name: n.name, Path: n.tools.shell, Args: args, Namespaces: true})
	if err != nil {
		return err
	}
	if err := n.waitReady(ctx, client); err != nil {
		return n.explain(cluster, err)
	}
	return nil
}

// waitReady waits for what runs, and gives it what Pods need.
func (n *Node) waitReady(ctx context.Context, client kubernetes.Interface) error {
	if err := n.await(ctx, "containerd", n.containerdAnswers); err != nil {
		return err
	}
	if err := n.importLinger(ctx); err != nil {
		return err
	}
	if n.options.RuntimeOnly {
		return nil
	}
	return n.await(ctx, "kubelet", func(ctx context.Context) error { return n.ready(ctx, client) })
}

// explain adds how the node ended, if it did, and what its programs said last: any of
// them may be the reason why another fails.
func (n *Node) explain(cluster *devcluster.Cluster, err error) error {
	if ended := n.process.Err(); ended != nil {
		err = errors.Join(err, ended)
	}
	return withLog(withLog(err, n.log(cluster, "containerd")), n.log(cluster, devcluster.Kubelet))
}

// log is where a program of the node writes to.
func (n *Node) log(cluster *devcluster.Cluster, program string) string {
	return cluster.Log(n.name + "-" + program)
}

// await polls until there is no error, or the node has ended.
func (n *Node) await(ctx context.Context, program string, ask func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		last := ask(ctx)
		if last == nil {
			return nil
		}
		if n.process.Err() != nil {
			return fmt.Errorf("wait for %s: %w", program, last)
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait for %s: %w", program, errors.Join(ctx.Err(), last))
		}
	}
}

func (n *Node) containerdAnswers(ctx context.Context) error {
	_, err := n.ctr(ctx, "version")
	return err
}

func (n *Node) ready(ctx context.Context, client kubernetes.Interface) error {
	live, err := client.CoreV1().Nodes().Get(ctx, n.name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for _, c := range live.Status.Conditions {
		if c.Type == corev1.NodeReady {
			if c.Status == corev1.ConditionTrue {
				return nil
			}
			return fmt.Errorf("node %s is not Ready: %s", n.name, c.Message)
		}
	}
	return fmt.Errorf("node %s has no condition Ready", n.name)
}

// Name is that of the Node. There is no scheduler: Pods name it in spec.nodeName.
func (n *Node) Name() string { return n.name }

// RuntimeEndpoint is where containerd serves the Container Runtime Interface.
func (n *Node) RuntimeEndpoint() string { return "unix://" + n.socket() }

func (n *Node) socket() string { return filepath.Join(n.folder, "containerd.sock") }

// ImageFilesystem is a path on the file system that has the images.
func (n *Node) ImageFilesystem() string {
	return filepath.Join("/proc", strconv.Itoa(n.process.PID()), "root", n.folder, "root") // in the node's mount namespace
}

// Stop kills the node with all its containers, and removes what it left on the machine.
// The Node and its Pods stay in the API. It does nothing the second time.
func (n *Node) Stop() error {
	var err error
	if n.process != nil {
		err = n.process.Kill()
	}
	if n.folder == "" {
		return err
	}
	return errors.Join(err, removeCgroups(n.cgroup), os.RemoveAll(n.folder))
}
