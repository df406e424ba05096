package nodeagent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gleaner-dev/gleaner/operator/nodeagent"
	"github.com/gleaner-dev/gleaner/operator/noderetention"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

// machine is a node with a container runtime in memory.
type machine struct {
	mu       sync.Mutex
	node     noderetention.Node
	needs    nodeagent.Needs
	needsErr error
	cached   *nodeagent.Needs // what the agent has cached; nil: needs
	use      retain.Usage
	useErr   error
	policies []noderetention.Policy
	removed  []string // IDs, in their order
	unpacked int64    // how often the size of an image is freed; 0: once
	calls    map[string]int
	reports  []nodeagent.Report
	labels   map[string]map[string]string // of images, by ID
	review   func(context.Context, nodeagent.Review) (nodeagent.Answer, error)

	// before is called before a call of the runtime, without the lock. It can change the machine, and fail the call.
	before func(call, id string) error
}

func newMachine() *machine { return &machine{calls: map[string]int{}} }

func (m *machine) enter(call, id string) error {
	m.mu.Lock()
	m.calls[call]++
	before := m.before
	m.mu.Unlock()
	if before != nil {
		return before(call, id)
	}
	return nil
}

func (m *machine) change(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

func (m *machine) setBefore(f func(call, id string) error) { m.change(func() { m.before = f }) }

func (m *machine) Node(context.Context) (noderetention.Node, error) {
	err := m.enter("Node", "")
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.node
	n.Images, n.Containers = slices.Clone(n.Images), slices.Clone(n.Containers)
	return n, err
}

func (m *machine) Containers(ctx context.Context) (noderetention.Node, error) {
	err := m.enter("Containers", "")
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.node
	n.Images, n.Containers = nil, slices.Clone(n.Containers)
	return n, err
}

func (m *machine) Image(_ context.Context, id string) (noderetention.Image, bool, error) {
	err := m.enter("Image", id)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range m.node.Images {
		if i.ID == id {
			return i, true, err
		}
	}
	return noderetention.Image{}, false, err
}

func (m *machine) Labels(_ context.Context, id string) (map[string]string, error) {
	err := m.enter("Labels", id)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.labels[id], err
}

func (m *machine) Exited(_ context.Context, id string) (bool, error) {
	err := m.enter("Exited", id)
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, c := range m.node.Containers {
		if c.ID == id {
			return c.Exited, err
		}
	}
	return false, err
}

func (m *machine) RemoveImage(_ context.Context, id string) error {
	if err := m.enter("RemoveImage", id); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removed = append(m.removed, id)
	m.node.Images = slices.DeleteFunc(m.node.Images, func(i noderetention.Image) bool {
		if i.ID == id {
			m.use.Available += i.Size * max(m.unpacked, 1)
		}
		return i.ID == id
	})
	return nil
}

func (m *machine) RemoveContainer(_ context.Context, id string) error {
	if err := m.enter("RemoveContainer", id); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.removed = append(m.removed, id)
	m.node.Containers = slices.DeleteFunc(m.node.Containers, func(c noderetention.Container) bool { return c.ID == id })
	return nil
}

// count returns how often a call was made.
func (m *machine) count(call string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[call]
}

// run runs an agent until the test ends.
func (m *machine) run(t *testing.T) *nodeagent.Agent {
	t.Helper()
	a := nodeagent.New(nodeagent.Options{
		Runtime: m, Log: logr.Discard(), Review: m.review,
		Needs: func(_ context.Context, live bool) (nodeagent.Needs, error) {
			err := m.enter(fmt.Sprint("Needs live=", live), "")
			m.mu.Lock()
			defer m.mu.Unlock()
			if !live && m.cached != nil {
				return *m.cached, errors.Join(err, m.needsErr)
			}
			return m.needs, errors.Join(err, m.needsErr)
		},
		Usage: func(context.Context) (retain.Usage, error) {
			m.mu.Lock()
			defer m.mu.Unlock()
			m.calls["Usage"]++
			return m.use, m.useErr
		},
		Policies: func() ([]noderetention.Policy, bool) {
			m.mu.Lock()
			defer m.mu.Unlock()
			return m.policies, m.policies != nil
		},
		Publish: func(r nodeagent.Report) { m.change(func() { m.reports = append(m.reports, r) }) },
	})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() {
		defer close(done)
		a.Run(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
	return a
}

// after lets time pass.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func (m *machine) wantRemoved(t *testing.T, when string, want ...string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if diff := cmp.Diff(want, m.removed, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s: removed (-want +got):\n%s", when, diff)
	}
}

func (m *machine) last(t *testing.T) nodeagent.Report {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.reports) == 0 {
		t.Fatal("there is no report")
	}
	return m.reports[len(m.reports)-1]
}

func image(id string) noderetention.Image {
	return noderetention.Image{ID: id, Names: []string{"registry.example.com/" + id + ":1"}, Size: 100}
}

func unusedFor(d time.Duration) noderetention.Policy {
	return noderetention.Policy{Name: "old", Enforce: true, Images: &noderetention.ImageLimits{MaxAge: d}}
}

func full(high, low int) noderetention.Policy {
	return noderetention.Policy{Name: "full", Enforce: true, Images: &noderetention.ImageLimits{Usage: &retain.Watermarks{High: high, Low: low}}}
}

func exited(created time.Duration) noderetention.Container {
	return noderetention.Container{
		ID: fmt.Sprint("p", created), Name: "c", Pod: noderetention.Pod{UID: "p", Namespace: "shop", Name: "p"}, Exited: true,
		Created: time.Now().Add(created - time.Hour), Images: []string{"x"},
	}
}
