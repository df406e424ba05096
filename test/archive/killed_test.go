package archive

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/test/program"
	"github.com/gleaner-dev/gleaner/test/proxy"
)

// killer kills a process at one of its writes to objects in a namespace.
type killer struct {
	mu      sync.Mutex // covers what follows
	after   int        // number of writes before that
	process *program.Process
}

// target sets the process to kill.
func (k *killer) target(p *program.Process) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.process = p
}

// due counts a write, and reports whether the process is to be killed now.
func (k *killer) due() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.after--
	return k.after < 0
}

func (k *killer) kill() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.process != nil {
		k.process.Kill()
	}
}

// A moment is when a process is killed, relative to a write.
type moment int

const (
	before moment = iota // the API server does not get the write
	after                // the process does not get the response
	during               // some milliseconds later, whatever the process does then
	moments
)

// killAt has a process killed at a write of some verbs, after a number of others.
func (b *testbed) killAt(t *testing.T, k *killer, at moment, matches func(proxy.Call) bool) *proxy.Fault {
	fault := b.proxy.Fail(-1, func(c proxy.Call) bool { return matches(c) && c.Resource != "events" && k.due() },
		func(w http.ResponseWriter, r *http.Request, pass http.Handler) {
			switch at {
			case after:
				pass.ServeHTTP(httptest.NewRecorder(), r)
			case during:
				time.AfterFunc(rand.N(8*time.Millisecond), k.kill)
				pass.ServeHTTP(w, r)
				return
			case before, moments:
			}
			k.kill()
			panic(http.ErrAbortHandler)
		})
	t.Cleanup(fault.Lift)
	return fault
}

// The operator is killed before and after its writes, and at any other moment, while it archives what
// a user, the built-in collector and Gleaner itself delete.
func TestOperator_SIGKILL_WhatIsGoneIsInTheArchive(t *testing.T) {
	inEachMode(t, func(t *testing.T, b *testbed) {
		e, location := newEnv(t, b), "file://"+t.TempDir()
		g := b.operate(t, location)
		e.policy("held", configMaps("held"))
		e.policy("below", configMaps("below"))
		owner := e.labelled("owner", "none")
		all := append(e.createMany("held", 80), e.createMany("below", 40, owner)...)
		if !b.companion { // what the built-in collector deletes, Gleaner does not
			e.policy("cascade", configMaps("cascade")+", deletedBy: Gleaner")
			all = append(all, e.createMany("cascade", 80, owner)...)
		}
		g.Kill()
		for _, o := range append(all[:80:80], owner) {
			e.Delete(o, metav1.DeletePropagationBackground)
		}
		kills := 0
		for left := len(all); left != 0 && !t.Failed(); kills++ {
			e.killOnce(location, moment(kills%int(moments)), all)
			left = e.checkArchived(location, all)
		}
		t.Logf("killed %d times", kills-1)
		if kills < 3 {
			t.Errorf("killed only %d times", kills-1)
		}
	})
}

// killOnce runs the operator until it is killed, or everything is gone.
func (e *env) killOnce(location string, at moment, all []*unstructured.Unstructured) {
	e.Helper()
	k := &killer{after: rand.N(30)}
	fault := e.killAt(e.T, k, at, proxy.InNamespace(e.Namespace, "delete", "patch", "update"))
	defer fault.Lift()
	g := e.launch(e.T, location)
	k.target(g.Process)
	devtest.Eventually(e, timeout, func() error {
		if !g.IsRunning() {
			if !g.IsKilled() {
				e.Fatal(g.Ended())
			}
			return nil
		}
		remaining, left := e.remaining(), 0
		for _, o := range all {
			if remaining[o.GetUID()] {
				left++
			}
		}
		if left != 0 {
			return fmt.Errorf("%d objects are left", left)
		}
		return nil
	})
	g.Kill()
}
