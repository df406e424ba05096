package archive

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/archive/filestore"
)

// storeTrouble is objects that are deleted while the store does not accept any.
type storeTrouble struct {
	*env
	hold, cascade, proceed *unstructured.Unstructured // policies
	owner                  *unstructured.Unstructured // of what Gleaner deletes

	held, dependents, missed []*unstructured.Unstructured
}

func newStoreTrouble(e *env) *storeTrouble {
	e.Helper()
	s := &storeTrouble{env: e, owner: e.labelled("owner", "none")}
	s.hold = e.policy("hold", configMaps("held"))
	s.cascade = e.policy("cascade", configMaps("cascade")+", deletedBy: Gleaner")
	s.proceed = e.policy("proceed", configMaps("missed")+", onFailure: Continue")
	s.held = e.createMany("held", 10)
	s.dependents = e.createMany("cascade", 10, s.owner)
	s.missed = e.createMany("missed", 3)
	return s
}

func (s *storeTrouble) deleteAll() {
	s.Helper()
	for _, o := range append(append(s.held[:10:10], s.missed...), s.owner) {
		s.Delete(o, metav1.DeletePropagationBackground)
	}
}

// expectHeld waits until the policies report a failure with a cause, and checks that nothing that
// they hold is gone.
func (s *storeTrouble) expectHeld(cause string) {
	s.Helper()
	s.WaitForDeletion(append(s.missed[:3:3], s.owner)...)
	for _, p := range []*unstructured.Unstructured{s.hold, s.cascade, s.proceed} {
		if message := s.waitForArchiving(p, metav1.ConditionFalse, "StoreFailing"); !strings.Contains(message, cause) {
			s.Errorf("%s: the cause %q is missing: %s", p.GetName(), cause, message)
		}
	}
	devtest.Eventually(s, timeout, func() error {
		hold, cascade, proceed := s.status(s.hold), s.status(s.cascade), s.status(s.proceed)
		if hold.Held != 10 || hold.LastFailure == nil || cascade.LastFailure == nil || proceed.Missed != 3 {
			return fmt.Errorf("hold: %+v, cascade: %+v, proceed: %+v", hold, cascade, proceed)
		}
		return nil
	})
	remaining := s.remaining()
	for _, o := range append(s.held[:10:10], s.dependents...) {
		if !remaining[o.GetUID()] {
			s.Errorf("%s is gone while nothing can be archived", o.GetName())
		}
	}
	for _, o := range s.dependents {
		if live := s.Read(o); live == nil || live.GetDeletionTimestamp() != nil {
			s.Errorf("Gleaner has deleted %s while nothing can be archived", o.GetName())
		}
	}
}

// expectArchived waits until everything is archived and gone.
func (s *storeTrouble) expectArchived() {
	s.Helper()
	s.WaitForDeletion(append(s.held[:10:10], s.dependents...)...)
	s.waitForArchiving(s.hold, metav1.ConditionTrue, "Archiving")
	devtest.Eventually(s, timeout, func() error {
		hold, cascade := s.status(s.hold), s.status(s.cascade)
		if hold.Archived != 10 || hold.Held != 0 || cascade.Archived != 10 {
			return fmt.Errorf("hold: %+v, cascade: %+v", hold, cascade)
		}
		return nil
	})
}

// check checks the archive, which no process has open.
func (s *storeTrouble) check(location string) {
	s.Helper()
	s.checkArchived(location, append(s.held[:10:10], s.dependents...))
	if out, code := s.run(s.T, "archive", "verify", "--archive="+location); code != 0 || !strings.Contains(out, ": 0 corrupt.") {
		s.Errorf("verify: exit code %d\n%s", code, out)
	}
}

// prune removes the entry of one object from the archive, which no process has open.
func (s *storeTrouble) prune(location string) {
	s.Helper()
	gone := s.dependents[0]
	out, code := s.run(s.T, "archive", "prune", "--archive="+location, "--uid="+string(gone.GetUID()), "--yes")
	if code != 0 || !strings.Contains(out, gone.GetName()) || !strings.Contains(out, "Removed 1 entry.") {
		s.Errorf("prune: exit code %d\n%s", code, out)
	}
	out, code = s.run(s.T, "archive", "list", "-n", s.Namespace, "--archive="+location)
	if rest := s.dependents[1].GetName(); code != 0 || strings.Contains(out, gone.GetName()) || !strings.Contains(out, rest) {
		s.Errorf("list: exit code %d, want %s without %s\n%s", code, rest, gone.GetName(), out)
	}
}

// corrupt changes one byte of an entry on the disk, which verify has to report.
func (s *storeTrouble) corrupt(folder string) {
	s.Helper()
	r, err := filestore.OpenReadOnly(folder, filestore.Options{})
	if err != nil {
		s.Fatal(err)
	}
	var body []byte
	if err := r.Headers(s.Context(), archive.Query{UID: s.held[0].GetUID()}, func(h archive.Header) bool {
		body, err = r.Body(s.Context(), h)
		return false
	}); err != nil || len(body) == 0 {
		s.Fatal(body, err)
	}
	if err := r.Close(); err != nil {
		s.Fatal(err)
	}
	name := filepath.Join(folder, "archive.db")
	data, err := os.ReadFile(name)
	if err != nil {
		s.Fatal(err)
	}
	found := 0
	for at := bytes.Index(data, body); at >= 0; at = bytes.Index(data, body) { // also in pages that are free
		data[at+len(body)/2] ^= 1
		found++
	}
	if err := os.WriteFile(name, data, 0o600); found == 0 || err != nil {
		s.Fatal(found, err)
	}
	out, code := s.run(s.T, "archive", "verify", "--archive=file://"+folder)
	if code != 1 || !strings.Contains(out, s.held[0].GetName()) || !strings.Contains(out, ": 1 corrupt.") {
		s.Errorf("verify: exit code %d\n%s", code, out)
	}
}

func TestOperator_StorageOfflineAndSlow_NothingIsLost(t *testing.T) {
	e := newEnv(t, primary.start(t))
	location, link := newBucket(t)
	g := e.operate(t, location)
	s := newStoreTrouble(e)
	link.set(true, 0)
	s.deleteAll()
	s.expectHeld("cannot be reached")
	link.set(false, 50*time.Millisecond)
	s.expectArchived()
	link.set(false, 0)
	g.end()
	s.check(location)
	s.prune(location)
}
