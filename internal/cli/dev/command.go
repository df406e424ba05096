// Package dev implements gleaner-dev dev, and starts control planes with Gleaner.
package dev

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/gleaner-dev/gleaner/crds"
	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/freeport"
	"github.com/gleaner-dev/gleaner/internal/cli/arguments"
	"github.com/gleaner-dev/gleaner/internal/cli/modes"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/internal/cli/run"
	"github.com/gleaner-dev/gleaner/operator/certs"
	"github.com/gleaner-dev/gleaner/operator/companion"
	operator "github.com/gleaner-dev/gleaner/operator/run"
	"github.com/gleaner-dev/gleaner/operator/validation"
)

// Command returns the command gleaner-dev dev.
func Command(version string) *cobra.Command {
	var flags Flags
	cmd := &cobra.Command{
		Use:   "dev",
		Short: "Run a local control plane with Gleaner as its garbage collector",
		Long: "Run a control plane on this machine, with Gleaner as its garbage collector, until interrupted.\n\n" +
			"It must be run in a checkout of Gleaner. The first time, its programs are downloaded, or built from source. It listens on loopback only.",
		Args: arguments.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return dev(cmd.Context(), version, &flags, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	flags.AddTo(cmd.Flags())
	return cmd
}

func dev(ctx context.Context, version string, flags *Flags, out, logTo io.Writer) error {
	mode, controlPlane := flags.Mode(), flags.ControlPlane()
	if mode == modes.Primary {
		controlPlane.Controllers = devcluster.WithoutCollector()
	}
	s, err := Start(ctx, EnvironmentOptions{Version: version, Mode: mode, ControlPlane: controlPlane}, out, run.DevelopmentLogger(logTo))
	if err != nil {
		return err
	}
	s.printInstructions(out, pathDirectories(filepath.Dir(s.Cluster.KubectlPath())))
	err = s.wait(ctx)
	printer.Fprintf(out, "\nStopping.\n")
	return s.Stop(err)
}

// pathDirectories returns the directories of kubectl and of this program for $PATH, so that the
// printed commands can be copied.
func pathDirectories(kubectl string) string {
	self, err := os.Executable()
	if err != nil {
		return kubectl
	}
	return kubectl + string(os.PathListSeparator) + filepath.Dir(self)
}

// printInstructions prints how to connect to the control plane, and what to try.
func (s *Environment) printInstructions(out io.Writer, path string) {
	printer.Fprintf(out, `
Ready. In another terminal:

  export KUBECONFIG=%[1]s KUBECACHEDIR=%[5]s PATH=%[2]s:$PATH %[4]s=http://%[3]s

Three things to try:

  1. Background deletion: the ReplicaSet and Pods are deleted afterwards.
     kubectl create deployment web --image=nginx --replicas=3
     kubectl delete deployment web

  2. Foreground deletion: the Deployment is deleted last. Orphan deletion: the dependents are kept.
     kubectl create deployment web --image=nginx --replicas=3
     kubectl delete deployment web --cascade=foreground     (or --cascade=orphan)

  3. Inspect Gleaner's graph and decisions.
     curl -s 'http://%[3]s/debug/gc/graph?format=json'
     curl -s http://%[3]s/debug/gc/records
     gleaner explain deployment/web     (uses $%[4]s; override it with --endpoint)

Policies: keep ConfigMaps whose owner was deleted, first in Monitor mode.
     kubectl apply -f - <<EOF
     {apiVersion: gleaner.dev/v1alpha1, kind: ClusterGCPolicy, metadata: {name: keep}, spec: {
        resources: [{apiGroups: [""], resources: [configmaps]}], fixed: {collect: {decision: Orphan}}, mode: Monitor}}
     EOF
     kubectl get clustergcpolicies

Press Ctrl-C to stop and remove everything.

`, s.Cluster.Kubeconfig(), path, s.address, replicas.EndpointVariable, s.Cluster.KubectlCache())
}

// EnvironmentOptions configure an environment.
type EnvironmentOptions struct {
	Version, Mode string
	ControlPlane  devcluster.Options
}

// Environment is a control plane with a collector.
type Environment struct {
	version   string
	mode      string
	Cluster   *devcluster.Cluster
	Collector *operator.Operator // nil once it runs as a process of its own: see Restart
	address   string             // of the debug endpoints
	archive   string             // folder
	cancel    context.CancelFunc
	Done      chan error
}

// Start starts an environment.
func Start(ctx context.Context, o EnvironmentOptions, progress io.Writer, log logr.Logger) (*Environment, error) {
	ctrl.SetLogger(certs.QuietLogger(log))
	klog.SetLogger(log)
	began := time.Now()
	options := o.ControlPlane
	options.Progress = progress
	if found, err := devcluster.FindKubectl(ctx, options.KubernetesVersion); err == nil {
		printer.Fprintf(progress, "Using %s.\n", found)
		options.Kubectl = found
	} else {
		printer.Fprintf(progress, "The kubectl on the PATH is not used: %v.\n", err)
	}
	cluster, err := devcluster.Start(ctx, options)
	if err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	printer.Fprintf(progress, "The control plane is up after %s.\n", time.Since(began).Round(100*time.Millisecond))
	s := &Environment{version: o.Version, mode: o.Mode, Cluster: cluster, Done: make(chan error, 1)}
	if err := createManifests(ctx, cluster.RESTConfig()); err != nil {
		return nil, s.Stop(err)
	}
	if s.archive, err = cluster.Folder("archive"); err != nil {
		return nil, s.Stop(err)
	}
	if err := s.startCollector(ctx, log); err != nil {
		return nil, s.Stop(err)
	}
	return s, nil
}

// startCollector starts the collector.
func (s *Environment) startCollector(ctx context.Context, log logr.Logger) error {
	address, err := freeport.Address()
	if err != nil {
		return err
	}
	webhookAddress, err := freeport.Address()
	if err != nil {
		return err
	}
	// Its own identity, because writes of Gleaner itself get no holds.
	config, err := s.Cluster.ConfigFor("gleaner", "system:masters")
	if err != nil {
		return err
	}
	collector, mgr, err := run.AssembleLocal(ctx, run.LocalOptions{
		Version: s.version, Mode: s.mode, DebugAddress: address, WebhookAddress: webhookAddress, WebhookURL: onLocalhost(webhookAddress),
		Archive: s.archiveLocation(),
	}, config, log)
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.Background()) // canceled by stop, before the control plane stops
	s.Collector, s.address, s.cancel = collector, address, cancel
	go func() { s.Done <- mgr.Start(running) }()
	return nil
}

// onLocalhost returns the URL of a webhook at a loopback address, with the host name of its
// certificate.
func onLocalhost(address string) string {
	_, port, _ := net.SplitHostPort(address) // it comes from a listener
	return "https://" + net.JoinHostPort("localhost", port) + companion.VetoPath
}

// createManifests creates what manifests install, and the operator depends on.
func createManifests(ctx context.Context, config *rest.Config) error {
	if err := createCRDs(ctx, config); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	configuration := &admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: validation.ConfigurationName}}
	if _, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(ctx, configuration, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("create ValidatingWebhookConfiguration %s: %w", configuration.Name, err)
	}
	return nil
}

// createCRDs creates Gleaner's CustomResourceDefinitions.
func createCRDs(ctx context.Context, config *rest.Config) error {
	definitions, err := crds.Definitions()
	if err != nil {
		return err
	}
	client, err := apiextensions.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	for _, d := range definitions {
		if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, d, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("create CustomResourceDefinition %s: %w", d.Name, err)
		}
	}
	return nil
}

// wait waits until ctx is canceled or the collector stops.
func (s *Environment) wait(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case err := <-s.Done:
		s.Done <- nil
		return fmt.Errorf("the collector ended: %w", err)
	}
}

// Stop stops everything, and returns the first error.
func (s *Environment) Stop(err error) error {
	if ended := s.stopCollector(); err == nil {
		err = ended
	}
	if stopped := s.Cluster.Stop(); err == nil {
		err = stopped
	}
	return err
}
