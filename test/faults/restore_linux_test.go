package faults

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/devcluster"
	"github.com/gleaner-dev/gleaner/devcluster/child"
)

// restorer restores the storage of a control plane. etcd is started
// with the command line that devcluster used, which is read from /proc.
type restorer struct {
	*testing.T
	cluster *devcluster.Cluster
	folder  string // the cluster's
	command []string
	etcd    *os.Process // nil: started by devcluster
	exited  chan struct{}
}

// newRestorer returns a restorer for a cluster in a folder. It must be called before
// the cluster's cleanup is registered, so that etcd ends last.
func newRestorer(t *testing.T, cluster *devcluster.Cluster, folder string) *restorer {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cluster.PIDs()[devcluster.Etcd]))
	if err != nil {
		t.Fatal(err)
	}
	r := &restorer{T: t, cluster: cluster, folder: folder, command: strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")}
	t.Cleanup(func() {
		_ = cluster.StopAPIServer()
		_ = cluster.StopControllerManager()
		r.stopEtcd()
	})
	return r
}

// stop stops the API server, and then etcd gracefully.
func (r *restorer) stop() {
	r.Helper()
	if err := r.cluster.KillAPIServer(); err != nil {
		r.Fatal(err)
	}
	r.stopEtcd()
}

func (r *restorer) stopEtcd() {
	if r.etcd != nil {
		_ = r.etcd.Signal(syscall.SIGTERM)
		<-r.exited
		return
	}
	pid, runs := r.cluster.PIDs()[devcluster.Etcd]
	if !runs {
		return
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		r.Error(err)
	}
	eventually(r, func() error {
		if _, runs := r.cluster.PIDs()[devcluster.Etcd]; runs {
			return errors.New("etcd is still running")
		}
		return nil
	})
}

// start starts both again.
func (r *restorer) start() {
	r.Helper()
	cmd := exec.Command(r.command[0], r.command[1:]...)
	var output bytes.Buffer
	cmd.Stderr = &output
	if err := child.Start(cmd); err != nil {
		r.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // stopped with a signal
	}()
	r.etcd, r.exited = cmd.Process, exited
	eventually(r, func() error {
		for _, argument := range r.command {
			if address, ok := strings.CutPrefix(argument, "--listen-client-urls=https://"); ok {
				connection, err := net.Dial("tcp", address)
				if err != nil {
					return err
				}
				return connection.Close()
			}
		}
		return errors.New("etcd has no listen address")
	})
	if err := r.cluster.StartAPIServer(r.Context()); err != nil {
		r.Fatal(err)
	}
}

func (r *restorer) copy(from, to string) {
	r.Helper()
	if err := errors.Join(os.RemoveAll(to), os.CopyFS(to, os.DirFS(from))); err != nil {
		r.Fatal(err)
	}
}

// backUp copies the storage.
func (r *restorer) backUp() {
	r.Helper()
	r.stop()
	r.copy(filepath.Join(r.folder, "etcd"), filepath.Join(r.folder, "backup"))
	r.start()
}

// restore restores the storage from the backup.
func (r *restorer) restore() {
	r.Helper()
	r.stop()
	r.restoreFiles()
}

// restoreFiles is the part of restore that runs while both are stopped.
func (r *restorer) restoreFiles() {
	r.Helper()
	r.copy(filepath.Join(r.folder, "backup"), filepath.Join(r.folder, "etcd"))
	r.start()
}

// Owners are deleted by mistake, and the storage is restored to an earlier state
// while the collector still has dependents to collect. Their UIDs and resourceVersions are those
// that were decided on; but their owners exist again.
func TestRestore_OwnersKeepTheirDependents(t *testing.T) {
	t.Parallel()
	w, r := newRestorableEnv(t)
	var owners, kept []*unstructured.Unstructured
	for i := range 20 {
		owner := w.create(objectSpec{name: fmt.Sprintf("owner-%d", i)})
		owners = append(owners, owner)
		for j := range 3 {
			kept = append(kept, w.create(objectSpec{name: fmt.Sprintf("dependent-%d-%d", i, j), owners: ownerRefs(owner)}))
		}
	}
	w.waitForGraph(kept...)
	r.backUp()
	w.waitUntilIdle() // its watches are restored
	fault := w.proxy.fail(t, -1, inNamespace(w.ns, "delete", "patch"), unavailable)
	for _, owner := range owners {
		w.delete(owner, background)
		fault.waitForCount(t, fault.Count()+3) // so that their retries are spread
		sleep(t.Context())
	}
	r.stop()
	fault.Lift()
	r.restoreFiles()
	if err := w.auditor.reset(); err != nil {
		t.Fatal(err)
	}
	w.expectKept(owners...)
	var lost []*unstructured.Unstructured
	for _, o := range kept {
		if w.get(o) == nil {
			lost = append(lost, o)
		}
	}
	if len(lost) != 0 {
		t.Errorf("%d of %d dependents with existing owners are gone; the last: %s", len(lost), len(kept), w.describeDecisions(lost[len(lost)-1]))
	}
}

// A restore decreases resourceVersions. Later events must
// still be processed, without a restart of the collector.
func TestRestore_LaterEventsAreProcessed(t *testing.T) {
	t.Parallel()
	w, r := newRestorableEnv(t)
	owner := w.create(objectSpec{name: "owner"})
	dependent := w.create(objectSpec{name: "dependent", owners: ownerRefs(owner)})
	w.waitForGraph(owner, dependent)
	r.backUp()
	w.waitUntilIdle() // its watches are restored
	w.writeToStorage(200)
	r.restore()
	if err := w.auditor.reset(); err != nil {
		t.Fatal(err)
	}
	w.delete(owner, background)
	w.waitForDeletion(dependent)
	f := w.createCascade(2)
	f.deleteOwners()
	f.expectDone()
}

// newRestorableEnv returns a world on a control plane that can be restored.
func newRestorableEnv(t *testing.T) (*env, *restorer) {
	t.Helper()
	folder := t.TempDir()
	s := newTestbed(t, devcluster.Options{Dir: folder})
	r := newRestorer(t, s.cluster, folder)
	return newEnvOn(t, s), r
}

// writeToStorage writes to the storage.
func (w *env) writeToStorage(times int) {
	w.Helper()
	o := w.create(objectSpec{name: "busy"})
	for i := range times {
		w.patch(o, map[string]any{"labels": map[string]string{"at": strconv.Itoa(i)}})
	}
}
