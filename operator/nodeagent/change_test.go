package nodeagent_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gleaner-dev/gleaner/operator/noderetention"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

func TestPolicy_ThatChangesDuringARound_EndsIt(t *testing.T) {
	changed := full(80, 70)
	for what, policies := range map[string][]noderetention.Policy{
		"it is deleted":                    {},
		"it is not enforced":               {{Name: "full", UID: "1", Generation: 2, Images: changed.Images}},
		"it was created again":             {{Name: "full", UID: "2", Generation: 1, Enforce: true, Images: changed.Images}},
		"another policy keeps the image":   {changed, {Name: "keeps", Enforce: true, Images: &noderetention.ImageLimits{Keep: []string{"*"}}}},
		"the policies are not known again": nil,
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine()
				p := full(80, 70)
				p.UID, p.Generation = "1", 1
				m.node.Images = []noderetention.Image{image("a"), image("b")}
				m.policies = []noderetention.Policy{p}
				m.use = retain.Usage{Capacity: 1000, Available: 10}
				m.setBefore(func(call, id string) error {
					if call == "RemoveImage" && id == "a" {
						m.change(func() { m.policies = policies })
					}
					return nil
				})
				m.run(t)
				after(time.Second)
				m.wantRemoved(t, "after the change", "a")
			})
		})
	}
}

func TestPolicy_ThatChangesDuringARoundOfContainers_EndsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		none := 0
		m.policies = []noderetention.Policy{{Name: "few", Enforce: true, Containers: &noderetention.ContainerLimits{MaxPerContainer: &none}}}
		m.node.Containers = []noderetention.Container{exited(0), exited(time.Second), exited(2 * time.Second)}
		m.setBefore(func(call, _ string) error {
			if call == "RemoveContainer" {
				m.change(func() { m.policies = []noderetention.Policy{} })
			}
			return nil
		})
		m.run(t)
		after(time.Second)
		m.wantRemoved(t, "after the change", "p0s")
	})
}

func TestUsage_ThatCanNotBeReadAnyMore_RemovesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.node.Images = []noderetention.Image{image("a"), image("b")}
		m.policies = []noderetention.Policy{full(80, 70)}
		m.use = retain.Usage{Capacity: 1000, Available: 10}
		m.setBefore(func(call, _ string) error {
			if call == "RemoveImage" {
				m.change(func() { m.useErr = errors.New("no such file") })
			}
			return nil
		})
		m.run(t)
		after(10 * time.Minute)
		m.wantRemoved(t, "while the usage is not known", "a")
		if r := m.last(t); r.UsageErr == nil {
			t.Errorf("report: %+v", r)
		}
	})
}

func TestP07_UsageThatCanNotBe_IsNotKnown(t *testing.T) {
	for _, use := range []retain.Usage{{}, {Capacity: -1}, {Capacity: 100, Available: -1}} {
		synctest.Test(t, func(t *testing.T) {
			m := newMachine()
			m.node.Images = []noderetention.Image{image("a")}
			m.policies, m.use = []noderetention.Policy{full(80, 70)}, use
			m.run(t)
			after(time.Second)
			m.wantRemoved(t, "of an impossible usage")
			if r := m.last(t); r.UsageErr == nil || r.Usage != nil {
				t.Errorf("report: %+v", r)
			}
		})
	}
}

func TestRuntime_ThatFailsBetweenRemovals_IsReported(t *testing.T) {
	for _, failing := range []string{"Containers", "Image", "Exited"} {
		t.Run(failing, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMachine()
				p, none := full(80, 70), 0
				if failing == "Exited" {
					p.Containers = &noderetention.ContainerLimits{MaxPerContainer: &none}
				}
				m.node.Images = []noderetention.Image{image("a"), image("b")}
				m.node.Containers = []noderetention.Container{exited(0), exited(time.Second), exited(2 * time.Second)}
				m.policies = []noderetention.Policy{p}
				m.use = retain.Usage{Capacity: 1000, Available: 10}
				down := errors.New("connection refused")
				m.setBefore(func(call, _ string) error {
					if call == failing && (failing != "Containers" || m.count("Node") > 0) {
						return down
					}
					return nil
				})
				m.run(t)
				after(time.Second)
				m.wantRemoved(t, "while the runtime fails")
				if r := m.last(t); !errors.Is(r.RuntimeErr, down) || r.RuntimeAnswered {
					t.Errorf("report: %v", r.RuntimeErr)
				}
				if got := m.count("Exited"); got > 1 {
					t.Errorf("%d containers were read after the first failure", got)
				}
			})
		})
	}
}

// While the Pods can't be read, the status says that. It is no failure to remove something.
func TestPods_ThatCanNotBeReadBetweenRemovals_AreReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMachine()
		m.node.Images = []noderetention.Image{image("a")}
		m.policies = []noderetention.Policy{full(80, 70)}
		m.use = retain.Usage{Capacity: 1000, Available: 10}
		m.setBefore(func(call, _ string) error {
			if call == "Needs live=true" {
				return errors.New("no connection")
			}
			return nil
		})
		m.run(t)
		after(time.Second)
		m.wantRemoved(t, "while the Pods can't be read")
		if r := m.last(t); r.UsesErr == nil || r.UsesRead || !r.RuntimeAnswered || len(r.Removals) > 0 {
			t.Errorf("report: %+v", r)
		}
	})
}
