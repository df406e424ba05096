package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gleaner-dev/gleaner/devcluster"
)

const (
	handwrittenName    = "a controller by hand"
	handwrittenCommand = "controller"

	// handwrittenWorkers is Gleaner's number of workers for a finalizer.
	handwrittenWorkers = 8
)

// handwritten is a handwritten controller, as an alternative to a module: it handles one
// finalizer, in a process of its own, which runs this program.
type handwritten struct {
	cluster *devcluster.Cluster
	url     string // for one request for each object; "": none
	attach  string // namespace in which it adds its finalizer to all objects; "": none
	process *exec.Cmd
}

func (h *handwritten) name() string { return handwrittenName }

func (h *handwritten) start(_ context.Context, _ budget) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	h.process = exec.Command(self, handwrittenCommand, "-kubeconfig="+h.cluster.Kubeconfig(), "-url="+h.url, "-attach="+h.attach)
	h.process.Stderr = os.Stderr
	return h.process.Start()
}

func (h *handwritten) synced(context.Context) (bool, error) { return true, nil }
func (h *handwritten) pid() int                             { return h.process.Process.Pid }

func (h *handwritten) stop() error {
	if h.process == nil {
		return nil
	}
	if err := h.process.Process.Signal(syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop %s: %w", handwrittenName, err)
	}
	return h.process.Wait()
}

// runHandwritten runs in the process of a handwritten.
func runHandwritten(args []string) error {
	flags := flag.NewFlagSet(handwrittenCommand, flag.ExitOnError)
	kubeconfig := flags.String("kubeconfig", "", "path of the kubeconfig")
	r := &reconciler{http: &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{MaxIdleConnsPerHost: handwrittenWorkers}}}
	flags.StringVar(&r.url, "url", "", "URL for a request for each object")
	flags.StringVar(&r.attach, "attach", "", "namespace in which to add the finalizer to all objects")
	if err := flags.Parse(args); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	ctrl.SetLogger(logr.FromSlogHandler(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError})))
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1 // unlimited, as in Gleaner
	manager, err := ctrl.NewManager(config, ctrl.Options{Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		return err
	}
	r.client = manager.GetClient()
	err = ctrl.NewControllerManagedBy(manager).For(&corev1.ConfigMap{}).
		WithOptions(controller.Options{MaxConcurrentReconciles: handwrittenWorkers}).Complete(r)
	if err != nil {
		return err
	}
	return manager.Start(ctx)
}

// reconciler handles the finalizer in the usual way: it reads from a
// cache, and updates the object.
type reconciler struct {
	client client.Client
	http   *http.Client
	url    string
	attach string
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	var o corev1.ConfigMap
	if err := r.client.Get(ctx, request.NamespacedName, &o); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if o.DeletionTimestamp.IsZero() {
		if o.Namespace == r.attach && controllerutil.AddFinalizer(&o, benchFinalizer) {
			return ctrl.Result{}, r.client.Update(ctx, &o)
		}
		return ctrl.Result{}, nil
	}
	if !controllerutil.ContainsFinalizer(&o, benchFinalizer) {
		return ctrl.Result{}, nil
	}
	if err := r.cleanUp(ctx, o.Name); err != nil {
		return ctrl.Result{}, err
	}
	controllerutil.RemoveFinalizer(&o, benchFinalizer)
	return ctrl.Result{}, client.IgnoreNotFound(r.client.Update(ctx, &o))
}

// cleanUp deletes the external resource of an object.
func (r *reconciler) cleanUp(ctx context.Context, name string) error {
	if r.url == "" {
		return nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodDelete, r.url+"/"+name, nil)
	if err != nil {
		return err
	}
	response, err := r.http.Do(request)
	if err != nil {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("remove %s: %s", name, response.Status)
	}
	return nil
}
