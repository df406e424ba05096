package devcluster

import (
	"context"
	"fmt"
	"os"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// apiServerReady are the paths that answer when the API server is of use. The
// default namespace is made a moment after the server calls itself ready.
var apiServerReady = []string{"/readyz", "/api/v1/namespaces/default"}

// StartAPIServer starts the API server again after StopAPIServer or
// KillAPIServer, with the same port and data, and returns when it is ready. A
// controller manager that has ended in the meantime, as it does after ten seconds
// without an API server, is started again as well.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	p, err := c.run(c.apiServerCommand(), c.ports.api)
	if err != nil {
		return err
	}
	if err := c.await(ctx, p, c.ports.api, apiServerReady...); err != nil {
		return err
	}
	if controllers, gaveUp := c.lostControllers(); gaveUp {
		return c.StartControllerManager(ctx, controllers...)
	}
	return nil
}

// StopAPIServer stops the API server. It does nothing if none is running.
func (c *Cluster) StopAPIServer() error { return c.stopComponent(APIServer, (*process).stop) }

// KillAPIServer kills the API server, as a crash would.
func (c *Cluster) KillAPIServer() error { return c.stopComponent(APIServer, (*process).kill) }

// StartControllerManager runs the controller manager with these controllers,
// in the syntax of its --controllers flag; none means "*". It returns when the
// process is healthy, a moment before its controllers work.
func (c *Cluster) StartControllerManager(ctx context.Context, controllers ...string) error {
	if err := c.releaseLease(ctx); err != nil {
		return fmt.Errorf("release lease of %s: %w", ControllerManager, err)
	}
	p, err := c.run(c.controllerManagerCommand(controllers), c.ports.manager)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.controllers = controllers
	c.mu.Unlock()
	return c.await(ctx, p, c.ports.manager, "/healthz")
}

// StopControllerManager ends the controller manager. As on every cluster, its
// lease stays held until it expires or the next one is started here. It does
// nothing when none runs.
func (c *Cluster) StopControllerManager() error {
	return c.stopComponent(ControllerManager, (*process).stop)
}

func (c *Cluster) stopComponent(name string, how func(*process) error) error {
	c.mu.Lock()
	p, ok := c.processes[name]
	c.mu.Unlock()
	if !ok {
		return nil
	}
	if err := how(p); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.processes, name)
	return nil
}

// lostControllers are those of a controller manager that ended by itself.
func (c *Cluster) lostControllers() ([]string, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, ok := c.processes[ControllerManager]
	return c.controllers, ok && !p.running()
}

// releaseLease takes the lease from a controller manager of this cluster that has
// ended, since the next one would wait 15 seconds for it. The lease of a holder whose
// name does not have the form of a controller manager's is kept.
func (c *Cluster) releaseLease(ctx context.Context) error {
	if _, running := c.PIDs()[ControllerManager]; running {
		return nil
	}
	client, err := coordinationclient.NewForConfigAndClient(c.RESTConfig(), c.prober.client)
	if err != nil {
		return err
	}
	leases := client.Leases(metav1.NamespaceSystem)
	lease, err := leases.Get(ctx, ControllerManager, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	if holder := lease.Spec.HolderIdentity; holder == nil || !strings.HasPrefix(*holder, host+"_") {
		return nil
	}
	lease.Spec.HolderIdentity = nil
	_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	return err
}
