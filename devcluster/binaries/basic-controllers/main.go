// Command basic-controllers runs the controllers of Deployments, ReplicaSets, namespaces,
// service accounts and the protection of PersistentVolumeClaims, as kube-controller-manager does, and no others. They need few packages
// that the API server does not have, so it is built in seconds where
// kube-controller-manager takes more than a minute.
//
// It takes the flags of kube-controller-manager, and ignores those that it has no use for. It
// holds no lease.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/controller-manager/pkg/clientbuilder"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/deployment"
	"k8s.io/kubernetes/pkg/controller/namespace"
	"k8s.io/kubernetes/pkg/controller/replicaset"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
	"k8s.io/kubernetes/pkg/controller/volume/pvcprotection"
)

// The defaults of kube-controller-manager.
const (
	workers          = 5
	namespaceWorkers = 10
	resync           = 12 * time.Hour
	namespaceResync  = 5 * time.Minute
)

type options struct {
	kubeconfig        string
	qps               float32
	burst             int
	address, port     string
	certFile, keyFile string
}

func main() {
	var o options
	flags := pflag.NewFlagSet("basic-controllers", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "how to reach the API server")
	flags.Float32Var(&o.qps, "kube-api-qps", 20, "requests per second, for each controller")
	flags.IntVar(&o.burst, "kube-api-burst", 30, "requests that may exceed --kube-api-qps at once")
	flags.StringVar(&o.address, "bind-address", "127.0.0.1", "address to serve /healthz on")
	flags.StringVar(&o.port, "secure-port", "10257", "port to serve /healthz on")
	flags.StringVar(&o.certFile, "tls-cert-file", "", "certificate of /healthz")
	flags.StringVar(&o.keyFile, "tls-private-key-file", "", "private key of that certificate")
	err := flags.Parse(os.Args[1:])
	if err == nil {
		ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		err = run(ctx, o)
	}
	if err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "basic-controllers:", err)
		os.Exit(1)
	}
}

// run returns when the context ends and all controllers have ended, or with the first error.
func run(ctx context.Context, o options) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	config, err := clientcmd.BuildConfigFromFlags("", o.kubeconfig)
	if err != nil {
		return err
	}
	config.QPS, config.Burst = o.qps, o.burst
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	shared := informers.NewSharedInformerFactory(client, resync)
	// Each controller has its own service account, and the rights that Kubernetes gives it. The
	// certificate of the kubeconfig would take precedence over its token.
	accounts := clientbuilder.NewDynamicClientBuilder(rest.AnonymousClientConfig(config), client.CoreV1(), "kube-system")
	controllers, err := construct(ctx, accounts, shared)
	if err != nil {
		return err
	}
	shared.Start(ctx.Done())
	var all sync.WaitGroup
	for _, run := range controllers {
		all.Go(func() { run(ctx) })
	}
	err = serveHealth(ctx, o)
	cancel()
	all.Wait()
	return err
}

func construct(ctx context.Context, accounts clientbuilder.ControllerClientBuilder, shared informers.SharedInformerFactory) ([]func(context.Context), error) {
	apps, core := shared.Apps().V1(), shared.Core().V1()
	clients := map[string]kubernetes.Interface{}
	for _, name := range []string{"deployment-controller", "replicaset-controller", "service-account-controller", "pvc-protection-controller"} {
		client, err := accounts.Client(name)
		if err != nil {
			return nil, fmt.Errorf("make client of %s: %w", name, err)
		}
		clients[name] = client
	}
	deployments, err := deployment.NewDeploymentController(ctx, apps.Deployments(), apps.ReplicaSets(), core.Pods(), clients["deployment-controller"])
	if err != nil {
		return nil, fmt.Errorf("make deployment controller: %w", err)
	}
	replicaSets := replicaset.NewReplicaSetController(ctx, apps.ReplicaSets(), core.Pods(), clients["replicaset-controller"], replicaset.BurstReplicas)
	serviceAccounts, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(),
		clients["service-account-controller"], serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return nil, fmt.Errorf("make service account controller: %w", err)
	}
	// Without it, no deleted claim would ever go: the API server gives each a finalizer.
	claims, err := pvcprotection.NewPVCProtectionController(klog.FromContext(ctx), core.PersistentVolumeClaims(), core.Pods(), clients["pvc-protection-controller"])
	if err != nil {
		return nil, fmt.Errorf("make PersistentVolumeClaim protection controller: %w", err)
	}
	config, err := accounts.Config("namespace-controller")
	if err != nil {
		return nil, fmt.Errorf("make client of namespace-controller: %w", err)
	}
	namespaces, err := newNamespaces(ctx, config, shared)
	if err != nil {
		return nil, fmt.Errorf("make namespace controller: %w", err)
	}
	return []func(context.Context){
		func(ctx context.Context) { deployments.Run(ctx, workers) },
		func(ctx context.Context) { replicaSets.Run(ctx, workers) },
		func(ctx context.Context) { serviceAccounts.Run(ctx, 1) },
		func(ctx context.Context) { claims.Run(ctx, 1) },
		func(ctx context.Context) { namespaces.Run(ctx, namespaceWorkers) },
	}, nil
}

func newNamespaces(ctx context.Context, config *rest.Config, shared informers.SharedInformerFactory) (*namespace.NamespaceController, error) {
	// It discovers all types and deletes all objects of a namespace, which takes many requests.
	config.QPS *= 20
	config.Burst *= 100
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	objects, err := metadata.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	return namespace.NewNamespaceController(ctx, client, objects, client.Discovery().ServerPreferredNamespacedResources,
		shared.Core().V1().Namespaces(), namespaceResync, corev1.FinalizerKubernetes), nil
}

// serveHealth serves /healthz until the context ends.
func serveHealth(ctx context.Context, o options) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	server := &http.Server{Addr: o.address + ":" + o.port, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ListenAndServeTLS(o.certFile, o.keyFile); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve /healthz: %w", err)
	}
	return nil
}
