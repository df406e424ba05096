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

	"github.com/gleaner-dev/gleaner/devcluster/download"
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

	// KubernetesVersion is the version of Kubernetes, such as v1.35.4, or 1.35 for one with that minor version. Empty means
	// $GLEANER_KUBERNETES_VERSION, and without it the version in devcluster/binaries.
	KubernetesVersion string

	// Download is where the programs come from if they have not been built yet. If it does not answer within seconds, they are built from
	// source. The zero value builds them.
	Download download.Source

	// Processors is how many processors each component uses at once, as GOMAXPROCS. 0 means all: one component is
	// faster then, and several control planes at the same time take more processor time for the same work.
	Processors int

	// Progress receives one line per step. Nil means silence.
	Progress io.Writer
}

// WithoutCollector returns Options.Controllers for all controllers except the garbage
// collector and storage-version-migrator-controller, which makes kube-controller-manager
// panic without it.
func WithoutCollector() []string {
	return []string{"*", "-garbage-collector-controller", "-storage-version-migrator-controller"}
}

// basicControllerNames are the controllers in basic-controllers, as kube-controller-manager calls them.
var basicControllerNames = []string{
	"deployment-controller", "replicaset-controller", "namespace-controller", "serviceaccount-controller", "persistentvolumeclaim-protection-controller",
}

// build builds what the cluster needs. If a program takes the place of another one, it changes the options accordingly.
func (o *Options) build(ctx context.Context) (Binaries, error) {
	if o.BasicControllers && o.Controllers != nil {
		return Binaries{}, errors.New("start cluster: leave Controllers nil with BasicControllers, of which none can be switched off")
	}
	module, err := controlPlane.at(o.KubernetesVersion).locate(ctx, o.progress())
	if err != nil {
		return Binaries{}, err
	}
	manager := controllerManager
	if o.BasicControllers && module.hasBasicControllers() {
		manager = basicControllers
	}
	programs := []program{etcd, apiServer, manager}
	if o.Kubectl == "" {
		programs = append(programs, client)
	}
	from, err := module.find(ctx, programs, o.Download, o.progress())
	if err != nil {
		return Binaries{}, err
	}
	if from.downloaded && len(missing(from.folder, []program{controllerManager})) == 0 {
		manager, programs[2] = controllerManager, controllerManager // nothing has to be built
	}
	if o.BasicControllers && manager == controllerManager {
		o.Controllers = basicControllerNames
	}
	bin, err := from.complete(ctx, module, programs, o.progress())
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
