package nodeagent_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gleaner-dev/gleaner/operator/nodeagent"
	"github.com/gleaner-dev/gleaner/operator/noderetention"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

func TestP05_Image_IsRemovedWhenItWasUnusedForTheMaximumAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.node.Images = []noderetention.Image{image("a"), image("b")}
		m.needs = nodeagent.Needs{Images: []string{"registry.example.com/b:1"}}
		m.policies = []noderetention.Policy{unusedFor(7 * time.Minute)}
		m.run(t)
		after(7 * time.Minute)
		m.wantRemoved(t, "before")
		if r := m.last(t); r.Images.InUse != 1 || r.Images.Total != 2 || len(r.Images.Results[0].Upcoming) != 1 {
			t.Errorf("report: %+v", r.Images)
		}
		after(11 * time.Second)
		m.wantRemoved(t, "after it is due", "a")
		removals := m.last(t).Removals
		if len(removals) != 1 || removals[0].Name != "registry.example.com/a:1" || removals[0].Reason != retain.NotUsed || removals[0].Policy != "old" || removals[0].Err != nil {
			t.Errorf("removals: %+v", removals)
		}
	})
}

func TestP02_Image_StaysIfAnythingChangesBeforeItsRemoval(t *testing.T) {
	container := noderetention.Container{ID: "1", Name: "c", Pod: noderetention.Pod{UID: "p"}, Images: []string{"a"}}
	for what, change := range map[string]func(*machine){
		"a container was created": func(m *machine) { m.node.Containers = append(m.node.Containers, container) },
		"a container says nothing about its image": func(m *machine) {
			m.node.Containers = append(m.node.Containers, noderetention.Container{ID: "1", Name: "c"})
		},
		"a Pod names it":         func(m *machine) { m.needs.Images = []string{"registry.example.com/a:1"} },
		"it got another name":    func(m *machine) { m.node.Images[0].Names = []string{"registry.example.com/base:1"} },
		"it was pinned":          func(m *machine) { m.node.Images[0].Pinned = true },
		"it is gone":             func(m *machine) { m.node.Images = nil },
		"the Pods can't be read": func(m *machine) { m.needsErr = errors.New("no connection") },
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine()
				m.node.Images = []noderetention.Image{image("a")}
				m.policies = []noderetention.Policy{full(80, 70)}
				m.use = retain.Usage{Capacity: 1000, Available: 100}
				changed := false
				m.before = func(call, _ string) error {
					if call == "Containers" && m.count("Node") > 0 && !changed { // the first call after the list of images
						changed = true
						m.change(func() { change(m) })
					}
					return nil
				}
				m.run(t)
				after(30 * time.Second)
				if !changed {
					t.Fatal("nothing was read before the removal")
				}
				m.wantRemoved(t, "after the change")
			})
		})
	}
}

// The cache of Pods may be behind. What was read live a moment before is not replaced by it.
func TestP02_Image_StaysIfAPodNeedsItThatTheCacheDoesNotHave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		none := 0
		m.node.Images = []noderetention.Image{image("a")}
		m.node.Containers = []noderetention.Container{exited(0), exited(time.Second)}
		p := full(80, 70)
		p.Containers = &noderetention.ContainerLimits{MaxPerContainer: &none} // what it removes is preceded by a live read
		m.policies = []noderetention.Policy{p}
		m.use = retain.Usage{Capacity: 1000, Available: 100}
		m.needs, m.cached = nodeagent.Needs{Images: []string{"a"}}, &nodeagent.Needs{}
		m.run(t)
		after(5 * time.Second)
		m.wantRemoved(t, "while the cache is behind", "p0s")
	})
}

// A Pod is assigned first, and then its image comes: what was read live before that does not have the Pod.
func TestP02_Image_StaysIfAPodNeededItBeforeItCame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		none := 0
		m.node.Containers = []noderetention.Container{exited(0), exited(time.Second)}
		p := full(80, 70)
		p.Containers = &noderetention.ContainerLimits{MaxPerContainer: &none} // what it removes is preceded by a live read
		m.policies = []noderetention.Policy{p}
		m.use = retain.Usage{Capacity: 1000, Available: 100}
		m.cached = &nodeagent.Needs{}
		m.before = func(call, _ string) error {
			if call == "Node" { // images are listed
				m.change(func() {
					m.needs, m.node.Images = nodeagent.Needs{Images: []string{"a"}}, []noderetention.Image{image("a")}
				})
			}
			return nil
		}
		m.run(t)
		after(5 * time.Second)
		m.wantRemoved(t, "beside the container", "p0s")
	})
}

func TestUnread_IsNotUnused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.node.Images = []noderetention.Image{image("a")}
		m.policies = []noderetention.Policy{full(80, 70)}
		m.use = retain.Usage{Capacity: 1000, Available: 150}
		m.needsErr = errors.New("no connection")
		m.run(t)
		after(20 * time.Minute)
		m.wantRemoved(t, "while the Pods can't be read")
		if r := m.last(t); r.UsesErr == nil || r.Short == nil || r.Short.UsedPercent != 85 {
			t.Errorf("report: %+v", r)
		}
		m.change(func() { m.needsErr = nil })
		after(6 * time.Minute)
		m.wantRemoved(t, "afterwards", "a")
		if r := m.last(t); r.UsesErr != nil || r.Short != nil {
			t.Errorf("report: %+v", r)
		}
	})
}

func TestP06_FullFileSystem_IsNoticedWithinSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.node.Images = []noderetention.Image{image("a"), image("b"), image("c")}
		m.policies = []noderetention.Policy{full(80, 70)}
		m.use = retain.Usage{Capacity: 1000, Available: 500}
		m.run(t)
		after(time.Minute + 5*time.Second)
		m.change(func() { m.use.Available = 150 })
		after(10 * time.Second)
		m.wantRemoved(t, "within ten seconds", "a", "b")
		if got := m.last(t).Usage.Available; got != 350 {
			t.Errorf("available: %d", got)
		}
	})
}

func TestP06_Removals_EndWhenEnoughIsFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.node.Images = []noderetention.Image{image("a"), image("b"), image("c"), image("d")}
		m.policies = []noderetention.Policy{full(80, 60)}
		m.use, m.unpacked = retain.Usage{Capacity: 1000, Available: 10}, 2
		m.run(t)
		after(5 * time.Minute)
		m.wantRemoved(t, "of four that are packed in 400 bytes", "a", "b")
	})
}

func TestP20_TooLittleFreed_IsReported_AndTriedEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.node.Images = []noderetention.Image{image("a"), image("b")}
		m.needs.Images = []string{"b"}
		m.policies = []noderetention.Policy{full(50, 40)}
		m.use = retain.Usage{Capacity: 1000, Available: 100}
		m.run(t)
		after(time.Second)
		m.wantRemoved(t, "at once", "a")
		if s := m.last(t).Short; s == nil || s.UsedPercent != 80 || s.HighPercent != 50 || s.Freed != 100 {
			t.Errorf("shortage: %+v", s)
		}
		lists := m.count("Node")
		after(3 * time.Minute)
		if got := m.count("Node") - lists; got != 3 {
			t.Errorf("%d lists in three minutes, want 3", got)
		}
	})
}

func TestP19_RefusedAndFailedRemovals_LetOthersGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.node.Images = []noderetention.Image{image("a"), image("b"), image("c")}
		m.policies = []noderetention.Policy{full(80, 75)}
		m.use = retain.Usage{Capacity: 1000, Available: 200}
		m.before = func(call, id string) error {
			switch {
			case call == "RemoveImage" && id == "a":
				return fmt.Errorf("a: %w", noderetention.ErrRefused)
			case call == "RemoveImage" && id == "b":
				return errors.New("read-only file system")
			}
			return nil
		}
		m.run(t)
		after(time.Second)
		if r := m.last(t); r.Images.Refused != 1 || len(r.Removals) != 0 {
			t.Errorf("a refusal is no failure: %+v", r)
		}
		after(time.Minute + 10*time.Second)
		if r := m.last(t); len(r.Removals) != 1 || r.Removals[0].Err == nil {
			t.Errorf("removals: %+v", r.Removals)
		}
		after(2 * time.Minute)
		m.wantRemoved(t, "in the third round", "c")
	})
}

func TestRuntime_ThatFailsOrHangs_DelaysRemovals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.node.Images = []noderetention.Image{image("a")}
		m.policies = []noderetention.Policy{full(80, 70)}
		m.use = retain.Usage{Capacity: 1000, Available: 100}
		down := errors.New("connection refused")
		m.before = func(call, _ string) error {
			time.Sleep(2 * time.Minute) // the time limit of a call
			return down
		}
		m.run(t)
		after(20 * time.Minute)
		if r := m.last(t); !errors.Is(r.RuntimeErr, down) {
			t.Errorf("report: %v", r.RuntimeErr)
		}
		m.change(func() { m.before = nil })
		after(4 * time.Minute)
		m.wantRemoved(t, "when it answers again", "a")
		if r := m.last(t); r.RuntimeErr != nil {
			t.Errorf("report: %v", r.RuntimeErr)
		}
	})
}

func TestMonitor_RemovesNothing_AndShowsWhatWouldGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.node.Images = []noderetention.Image{image("a")}
		m.node.Containers = []noderetention.Container{exited(0), exited(time.Second)}
		m.use = retain.Usage{Capacity: 1000, Available: 100}
		p, none := full(80, 70), 0
		p.Enforce, p.Containers = false, &noderetention.ContainerLimits{MaxPerContainer: &none}
		m.policies = []noderetention.Policy{p}
		m.run(t)
		after(10 * time.Minute)
		m.wantRemoved(t, "in mode Monitor")
		r := m.last(t)
		if len(r.Images.Results[0].Removals) != 1 || len(r.Containers.Results[0].Removals) != 1 || r.Containers.Exited != 2 {
			t.Errorf("report: %+v %+v", r.Images, r.Containers)
		}
	})
}

func TestP09_Containers_AreRemovedEachMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		one := 1
		m.policies = []noderetention.Policy{{Name: "few", Enforce: true, Containers: &noderetention.ContainerLimits{MaxPerContainer: &one}}}
		m.run(t)
		after(time.Second)
		m.change(func() {
			m.node.Containers = []noderetention.Container{exited(0), exited(time.Second), exited(2 * time.Second)}
		})
		m.setBefore(func(call, id string) error {
			if call == "Exited" && id == "p0s" { // it was started again
				m.change(func() { m.node.Containers[0].Exited = false })
			}
			return nil
		})
		after(time.Minute)
		m.wantRemoved(t, "within a minute", "p1s")
	})
}

func TestPolicies_UntilTheyAreKnown_NothingIsDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.node.Images = []noderetention.Image{image("a")}
		m.use = retain.Usage{Capacity: 1000, Available: 100}
		a := m.run(t)
		after(time.Hour)
		m.change(func() {
			if len(m.calls) > 0 || len(m.reports) > 0 {
				t.Errorf("calls: %v", m.calls)
			}
		})
		m.change(func() { m.policies = []noderetention.Policy{full(80, 70)} })
		a.Wake()
		after(3 * time.Second)
		m.wantRemoved(t, "after the policies are known", "a")
	})
}

func TestP14_IdleAgent_CallsTheRuntimeOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.node.Images = []noderetention.Image{image("a")}
		m.use = retain.Usage{Capacity: 1000, Available: 900}
		m.policies = []noderetention.Policy{full(80, 70)}
		m.run(t)
		after(time.Second)
		m.change(func() { clear(m.calls) })
		after(time.Hour)
		m.change(func() {
			if m.calls["Containers"] != 60 || m.calls["Node"] != 12 || m.calls["Needs live=true"] != 0 {
				t.Errorf("calls in an hour: %v", m.calls)
			}
		})
	})
}
