// Package node implements gleaner node: it runs the agent that removes unused images and exited containers from one node.
package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gleaner-dev/gleaner/internal/cli/arguments"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/serving"
	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/operator/noderun"
)

// Command returns the command gleaner node.
func Command(version string) *cobra.Command {
	o := defaultOptions()
	o.version = version
	cmd := &cobra.Command{
		Use:   "node",
		Short: "Remove unused images and exited containers from a node",
		Long: "Remove unused images and exited containers from a node, by the NodeRetentionPolicies that select it. config/node runs this on\n" +
			"every node, as a DaemonSet. Disable the kubelet's own collection: see docs/node-retention.md.",
		Args: arguments.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return exit.AsUsage(err)
			}
			config, err := serving.Config(o.kubeconfig)
			if err != nil {
				return err
			}
			return run(cmd.Context(), o, config, cmd.ErrOrStderr())
		},
	}
	o.addTo(cmd.Flags())
	return cmd
}

// run runs the agent until ctx ends.
func run(ctx context.Context, o options, config *rest.Config, logTo io.Writer) error {
	log := serving.Logger(logTo, o.logFormat, o.verbosity)
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	if err := kubectl.CheckConnection(ctx, config); err != nil {
		return err
	}
	config = rest.CopyConfig(config)
	config.UserAgent = "gleaner-node/" + o.version
	mgr, err := o.manager(config)
	if err != nil {
		return err
	}
	err = noderun.AddTo(mgr, noderun.Options{
		Node: o.node, RuntimeEndpoint: o.runtimeEndpoint, RuntimeTimeout: o.runtimeTimeout, ImageFilesystem: o.imageFilesystem,
		Metrics: metrics.Registry, Log: log,
	})
	if err != nil {
		return err
	}
	if err := mgr.Start(ctx); err != nil {
		return fmt.Errorf("run: %w", err)
	}
	return nil
}

func (o *options) manager(config *rest.Config) (manager.Manager, error) {
	serve := metricsserver.Options{BindAddress: o.metricsAddress}
	if !o.insecureMetrics {
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			return nil, fmt.Errorf("create client for reviews: %w", err)
		}
		guard, err := debug.NewGuard(client)
		if err != nil {
			return nil, err
		}
		serve.SecureServing = true
		serve.FilterProvider = func(*rest.Config, *http.Client) (metricsserver.Filter, error) { return guard.Filter, nil }
	}
	settings := manager.Options{Metrics: serve, HealthProbeBindAddress: o.probeAddress}
	if err := noderun.Configure(&settings, o.node); err != nil {
		return nil, err
	}
	mgr, err := ctrl.NewManager(config, settings)
	if err != nil {
		return nil, fmt.Errorf("create manager: %w", err)
	}
	return mgr, nil
}

// nodeVariable has the name of the node, in the Pods of config/node.
const nodeVariable = "NODE_NAME"

// runtimeTimeout is the kubelet's default.
const runtimeTimeout = 2 * time.Minute

func nodeName() string { return os.Getenv(nodeVariable) }

var errNoNode = errors.New("set --node-name to the name of the Node that this runs on, or $" + nodeVariable)
