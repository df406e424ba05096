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
)

// restorer puts the storage of a control plane back to what it was. etcd runs
// by the command line that devcluster gave it, which Linux tells.
type restorer struct {
	*testing.T
	cluster *devcluster.Cluster
	folder  string // of the cluster
	command []string
	etcd    *os.Process // nil: it is devcluster's
	exited  chan struct{}
}

// newRestorer returns one for a cluster in a folder. It has to be made before
// the cluster's end is prepared for, so that etcd ends last.
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

// down ends the API server, and then etcd in order.
func (r *restorer) down() {
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
			return errors.New("etcd still runs")
		}
		return nil
	})
}

// up starts both again.
func (r *restorer) up() {
	r.Helper()
	cmd := exec.Command(r.command[0], r.command[1:]...)
	var output bytes.Buffer
	cmd.Stderr = &output
	tieToParent(cmd)
	if err := cmd.Start(); err != nil {
		r.Fatal(err)
	}
	exited := make(chan struct{})
	go func() {
		defer close(exited)
		_ = cmd.Wait() // it is told to end
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
		return errors.New("etcd listens nowhere")
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

// backUp keeps the storage as it is.
func (r *restorer) backUp() {
	r.Helper()
	r.down()
	r.copy(filepath.Join(r.folder, "etcd"), filepath.Join(r.folder, "backup"))
	r.up()
}

// restore puts the storage back to what it was at backUp.
func (r *restorer) restore() {
	r.Helper()
	r.down()
	r.bringBack()
}

// bringBack is what restore does once all is down.
func (r *restorer) bringBack() {
	r.Helper()
	r.copy(filepath.Join(r.folder, "backup"), filepath.Join(r.folder, "etcd"))
	r.up()
}

// Owners are deleted by mistake, and the storage restored from before that
// while the collector still has dependents to collect. They are as they were
// judged, by UID and resourceVersion; but their owners stand again.
func TestRestoredOwnersKeepTheirDependents(t *testing.T) {
	t.Parallel()
	w, r := restorable(t)
	var owners, kept []*unstructured.Unstructured
	for i := range 20 {
		owner := w.make(thing{name: fmt.Sprintf("owner-%d", i)})
		owners = append(owners, owner)
		for j := range 3 {
			kept = append(kept, w.make(thing{name: fmt.Sprintf("dependent-%d-%d", i, j), owners: owns(owner)}))
		}
	}
	w.seen(kept...)
	r.backUp()
	w.calm() // it watches again
	fault := w.proxy.fails(t, -1, in(w.ns, "delete", "patch"), unavailable)
	for _, owner := range owners {
		w.delete(owner, background)
		fault.happened(t, fault.Count()+3) // so that they are not all tried again at the same time
		pause(t.Context())
	}
	r.down()
	fault.Lift()
	r.bringBack()
	if err := w.witness.forget(); err != nil {
		t.Fatal(err)
	}
	w.stays(owners...)
	var lost []*unstructured.Unstructured
	for _, o := range kept {
		if w.get(o) == nil {
			lost = append(lost, o)
		}
	}
	if len(lost) != 0 {
		t.Errorf("%d of %d dependents are gone, whose owners stand; of the last: %s", len(lost), len(kept), w.decided(lost[len(lost)-1]))
	}
}

// resourceVersions go backwards with a restore. What happens after it is
// noticed all the same, without the collector being started anew.
func TestARestoredStorageIsWatched(t *testing.T) {
	t.Parallel()
	w, r := restorable(t)
	owner := w.make(thing{name: "owner"})
	dependent := w.make(thing{name: "dependent", owners: owns(owner)})
	w.seen(owner, dependent)
	r.backUp()
	w.calm() // it watches again
	w.busy(200)
	r.restore()
	if err := w.witness.forget(); err != nil {
		t.Fatal(err)
	}
	w.delete(owner, background)
	w.goes(dependent)
	f := w.family(2)
	f.fall()
	f.end()
}

// restorable gives a test a world on a control plane that can be restored.
func restorable(t *testing.T) (*world, *restorer) {
	t.Helper()
	folder := t.TempDir()
	s := ownStage(t, devcluster.Options{Dir: folder})
	r := newRestorer(t, s.cluster, folder)
	return worldOn(t, s), r
}

// busy writes to the storage.
func (w *world) busy(times int) {
	w.Helper()
	o := w.make(thing{name: "busy"})
	for i := range times {
		w.patch(o, map[string]any{"labels": map[string]string{"at": strconv.Itoa(i)}})
	}
}
