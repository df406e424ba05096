// Package devcluster runs a real Kubernetes control plane on this machine:
// etcd, kube-apiserver and kube-controller-manager as child processes, bound
// to loopback, with TLS and RBAC as on a production cluster.
//
// It is for development, demonstrations and tests. There is no scheduler, no
// kubelet and no network: objects are stored, admitted, watched and collected,
// and no container ever runs, unless package node adds a node. Data is not
// flushed to disk and goes away with Stop.
package devcluster

import (
	"context"
	"errors"
	"io"
	"time"
)

// Names of the components: the keys of PIDs and the names of the log files.
const (
	Etcd              = "etcd"
	APIServer         = "kube-apiserver"
	ControllerManager = "kube-controller-manager"
)

const (
	startTimeout = 90 * time.Second      // for Start when its context has no deadline
	stopGrace    = 5 * time.Second       // between SIGTERM and SIGKILL
	pollInterval = 50 * time.Millisecond // between two readiness checks
	portAttempts = 4                     // starts, each with fresh ports, before giving up
)

// Options say how a cluster differs from the usual one. The zero value is a
// complete control plane in a temporary folder.
type Options struct {
	// Controllers is the --controllers flag of the controller manager.
	// Nil means "*".
	Controllers []string

	// BasicControllers runs the controllers of Deployments, ReplicaSets,
	// namespaces, service accounts and claim protection, and no others: from the same source, in
	// a program that is built in seconds where kube-controller-manager takes
	// more than a minute. Controllers must be nil then.
	BasicControllers bool

	// NoControllerManager leaves the controller manager out. It can be started
	// later with StartControllerManager.
	NoControllerManager bool

	// AdmissionPlugins are enabled on the API server, besides those that are by default.
	AdmissionPlugins []string

	// The flags below come last on the command line of their component.
	// A flag given twice is decided by the last one, except list flags, which add up.
	APIServerFlags         []string
	ControllerManagerFlags []string
	EtcdFlags              []string

	// Kubectl is the program behind Cluster.Kubectl. Empty means one that is
	// built with the rest, at the version of the API server.
	Kubectl string

	// Dir holds data, keys and logs. Empty means a temporary folder. Stop
	// removes what Start put there.
	Dir string

	// LogDir holds one log file per component and outlives the cluster. Empty
	// means a folder that Stop removes; it is kept when Start fails.
	LogDir string

	// Progress receives one line per step. Nil means silence.
	Progress io.Writer
}

// WithoutCollector returns Options.Controllers for all controllers except the garbage
// collector and storage-version-migrator-controller, which makes kube-controller-manager
// panic without it.
func WithoutCollector() []string {
	return []string{"*", "-garbage-collector-controller", "-storage-version-migrator-controller"}
}

// build builds what the cluster needs.
func (o Options) build(ctx context.Context) (Binaries, error) {
	manager := controllerManager
	if o.BasicControllers {
		manager = basicControllers
	}
	if o.BasicControllers && o.Controllers != nil {
		return Binaries{}, errors.New("start cluster: leave Controllers nil with BasicControllers, of which none can be switched off")
	}
	programs := []program{etcd, apiServer, manager}
	if o.Kubectl == "" {
		programs = append(programs, client)
	}
	bin, err := controlPlane.build(ctx, programs, o.Progress)
	bin.ControllerManager = bin.pathOf(manager)
	if o.Kubectl != "" {
		bin.Kubectl = o.Kubectl
	}
	return bin, err
}

func (o Options) progress() io.Writer {
	if o.Progress == nil {
		return io.Discard
	}
	return o.Progress
}
