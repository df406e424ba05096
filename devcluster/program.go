package devcluster

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// A Program runs in addition to the components and is stopped before them, such as a node.
type Program struct {
	Name string // of its log file, and in PIDs
	Path string
	Args []string

	// Namespaces has it run as the first process of PID and mount namespaces of
	// its own: whatever it has started and mounted goes with it, however it ends.
	// Needs Linux and root.
	Namespaces bool
}

// A Process is a Program that was started.
type Process struct{ process *process }

// Run starts a program. Its working folder is the cluster's, and its environment has
// no more than PATH and HOME.
func (c *Cluster) Run(program Program) (*Process, error) {
	cmd := c.command(program.Name, program.Path, program.Args, nil)
	cmd.namespaces, cmd.processors = program.Namespaces, 0 // it is not a component
	p, err := c.run(cmd, 0)
	if err != nil {
		return nil, err
	}
	return &Process{p}, nil
}

// PID is the process's number.
func (p *Process) PID() int { return p.process.handle.Pid }

// Kill ends the process by SIGKILL, and returns when it is gone. It does nothing the
// second time.
func (p *Process) Kill() error { return p.process.kill() }

// Err is nil as long as the process runs. Then it says how it ended, and has the
// last lines of its log.
func (p *Process) Err() error {
	if p.process.running() {
		return nil
	}
	return p.process.failure()
}

// Folder makes a folder in that of the cluster, which goes with the cluster.
func (c *Cluster) Folder(name string) (string, error) {
	dir := filepath.Join(c.files.root, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return "", fmt.Errorf("create folder %s: %w", name, err)
	}
	return dir, nil
}

// Log is where a program's log is, or may be.
func (c *Cluster) Log(name string) string { return c.files.log(name) }

// killPrograms kills all but the components. Call with the lock held.
func (c *Cluster) killPrograms() error {
	var errs []error
	for name, p := range c.processes {
		if name != Etcd && name != APIServer && name != ControllerManager {
			errs = append(errs, p.kill())
		}
	}
	return errors.Join(errs...)
}
