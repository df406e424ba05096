package devcluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/devcluster/freeport"
)

const (
	adminUser   = "gleaner-devcluster-admin"
	adminGroup  = "system:masters"
	managerUser = "system:kube-controller-manager"
)

// Cluster is a running control plane. Its methods may be called from any
// goroutine; those that start or stop the same component must not overlap.
type Cluster struct {
	opts   Options
	bin    Binaries
	files  layout
	ca     *authority
	ports  ports
	admin  *rest.Config
	prober prober

	mu          sync.Mutex          // covers the fields below
	processes   map[string]*process // all but those that were stopped on purpose
	controllers []string            // that the controller manager was last started with
	stopped     bool
}

// Start runs a control plane and returns when it serves. The context covers
// the start only; the cluster lives until Stop, or until this process ends by
// whatever means (on Linux).
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	bin, err := opts.build(ctx)
	if err != nil {
		return nil, err
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, startTimeout)
		defer cancel()
	}
	for attempt := 1; ; attempt++ {
		c, err := startOnce(ctx, opts, bin)
		if err == nil || attempt == portAttempts || !errors.Is(err, errPortTaken) {
			return c, err
		}
		fmt.Fprintln(opts.progress(), "devcluster: starting again:", errPortTaken)
	}
}

func startOnce(ctx context.Context, opts Options, bin Binaries) (*Cluster, error) {
	started := time.Now()
	c, err := prepare(opts, bin)
	if err != nil {
		return nil, err
	}
	if err := c.startComponents(ctx); err != nil {
		cleanup := c.files.removeData
		if errors.Is(err, errPortTaken) { // another port is tried, so the logs are not needed
			cleanup = c.files.remove
		}
		return nil, errors.Join(fmt.Errorf("start cluster: %w", err), c.end(cleanup))
	}
	fmt.Fprintf(opts.progress(), "devcluster: Kubernetes %s on %s, started in %s\n", bin.Version, c.admin.Host, time.Since(started).Round(100*time.Millisecond))
	return c, nil
}

// prepare does everything short of running a process.
func prepare(opts Options, bin Binaries) (_ *Cluster, err error) {
	c := &Cluster{opts: opts, bin: bin, processes: map[string]*process{}}
	if c.files, err = newLayout(opts); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.files.remove())
		}
	}()
	if c.ports, err = choosePorts(); err != nil {
		return nil, err
	}
	if c.ca, err = newAuthority(); err != nil {
		return nil, err
	}
	if err := c.writeFiles(); err != nil {
		return nil, err
	}
	if c.prober, err = newProber(c.admin); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Cluster) writeFiles() (err error) {
	if c.admin, err = c.ConfigFor(adminUser, adminGroup); err != nil {
		return err
	}
	manager, err := c.ConfigFor(managerUser)
	if err != nil {
		return err
	}
	return errors.Join(
		c.files.writePKI(c.ca),
		WriteKubeconfig(c.files.kubeconfig(), c.admin),
		WriteKubeconfig(c.files.managerKubeconfig(), manager),
	)
}

func (c *Cluster) startComponents(ctx context.Context) error {
	etcd, err := c.run(c.etcdCommand(), c.ports.etcd)
	if err != nil {
		return err
	}
	server, err := c.run(c.apiServerCommand(), c.ports.api) // needs etcd only half a second after its start
	if err != nil {
		return err
	}
	if err := c.await(ctx, etcd, c.ports.etcd, "/health"); err != nil {
		return err
	}
	if err := c.await(ctx, server, c.ports.api, apiServerReady...); err != nil {
		return err
	}
	if c.opts.NoControllerManager {
		return nil
	}
	return c.StartControllerManager(ctx, c.opts.Controllers...)
}

// run starts a component that is not running. Port 0 is for one without a port.
func (c *Cluster) run(cmd command, port int) (*process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, fmt.Errorf("start %s: cluster is stopped", cmd.name)
	}
	if p, ok := c.processes[cmd.name]; ok && p.running() {
		return nil, fmt.Errorf("start %s: already running as process %d", cmd.name, p.handle.Pid)
	}
	if port != 0 && freeport.IsTaken(port) {
		return nil, fmt.Errorf("start %s on port %d: %w", cmd.name, port, errPortTaken)
	}
	p, err := launch(cmd)
	if err != nil {
		return nil, err
	}
	c.processes[cmd.name] = p
	fmt.Fprintf(c.opts.progress(), "devcluster: %s is process %d, log in %s\n", p.name, p.handle.Pid, p.log)
	return p, nil
}

// await waits until the paths answer on the component's port.
func (c *Cluster) await(ctx context.Context, p *process, port int, paths ...string) error {
	urls := make([]string, len(paths))
	for i, path := range paths {
		urls[i] = fmt.Sprintf("https://%s:%d%s", loopback, port, path)
	}
	err := c.prober.await(ctx, p, urls...)
	if err != nil && !p.running() && freeport.IsTaken(port) { // nothing of ours holds it now
		return errors.Join(errPortTaken, err)
	}
	return err
}

// Stop ends the control plane and removes its data. It returns when every
// process is gone, and does nothing the second time.
func (c *Cluster) Stop() error {
	return c.end(c.files.remove)
}

func (c *Cluster) end(cleanup func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil
	}
	c.stopped = true
	err := errors.Join(
		c.killPrograms(),
		c.stopTogether(APIServer, ControllerManager), // both are clients of etcd
		c.stopTogether(Etcd),
	)
	if cleanupErr := cleanup(); cleanupErr != nil {
		err = errors.Join(err, fmt.Errorf("remove cluster folder: %w", cleanupErr))
	}
	return err
}

func (c *Cluster) stopTogether(names ...string) error {
	errs := make([]error, len(names))
	var all sync.WaitGroup
	for i, name := range names {
		if p, ok := c.processes[name]; ok {
			all.Go(func() { errs[i] = p.stop() })
		}
	}
	all.Wait()
	return errors.Join(errs...)
}

// PIDs gives the process number of every component that runs.
func (c *Cluster) PIDs() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	pids := map[string]int{}
	for name, p := range c.processes {
		if p.running() {
			pids[name] = p.handle.Pid
		}
	}
	return pids
}
