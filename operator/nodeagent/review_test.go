package nodeagent_test

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gleaner-dev/gleaner/operator/nodeagent"
	"github.com/gleaner-dev/gleaner/operator/noderetention"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

// asking has policies evaluated before each removal.
func asking() noderetention.Policy {
	return noderetention.Policy{Name: "ask", Enforce: true, Images: &noderetention.ImageLimits{EvaluatePolicies: true}}
}

// reviewed is a full node with the images a, b and c, of which some stay.
func reviewed(answer func(nodeagent.Review) (nodeagent.Answer, error)) *machine {
	m := newMachine()
	m.node.Images = []noderetention.Image{image("a"), image("b"), image("c")}
	m.policies = []noderetention.Policy{full(75, 70), asking()}
	m.use = retain.Usage{Capacity: 1000, Available: 150}
	m.review = func(_ context.Context, r nodeagent.Review) (nodeagent.Answer, error) { return answer(r) }
	return m
}

func TestReview_AnImageThatAPolicyKeepsStays_AndOthersGoInItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m *machine
		var reviews []nodeagent.Review
		m = reviewed(func(r nodeagent.Review) (nodeagent.Answer, error) {
			m.change(func() { reviews = append(reviews, r) })
			return nodeagent.Answer{Remove: r.Image.ID != "a", By: "ClusterGCPolicy base", Reason: "a base image", After: time.Hour}, nil
		})
		m.labels = map[string]map[string]string{"a": {"team": "shop"}}
		m.run(t)
		after(time.Second)
		m.wantRemoved(t, "at first", "b")
		after(10 * time.Minute)
		m.wantRemoved(t, "when a has been held back", "b", "c")
		asked := func() (list []nodeagent.Review) {
			m.change(func() { list = slices.Clone(reviews) })
			return list
		}
		if r := asked()[0]; r.Image.ID != "a" || r.Labels["team"] != "shop" || r.Policy != "full" || r.Limit != retain.Pressure || r.FirstSeen.IsZero() || !r.LastUsed.IsZero() {
			t.Errorf("asked %+v", r)
		}
		if kept := m.last(t).Images.Results[1].Kept["a"]; kept != retain.IsProtected {
			t.Errorf("a stays because of %q", kept)
		}
		n := len(asked())
		m.change(func() { m.use.Available = 200 })
		after(time.Hour)
		if all := asked(); len(all) <= n || all[len(all)-1].Image.ID != "a" {
			t.Error("it was not asked again about a after an hour")
		}
		m.change(func() { m.policies = []noderetention.Policy{full(75, 70)} })
		after(6 * time.Minute)
		m.wantRemoved(t, "when no policy is asked any more", "b", "c", "a")
	})
}

// What does not answer keeps everything, and costs little time.
func TestReview_WithoutAnAnswer_NothingIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		var up atomic.Bool
		m := reviewed(func(nodeagent.Review) (nodeagent.Answer, error) {
			asked.Add(1)
			if !up.Load() {
				return nodeagent.Answer{}, errors.New("the operator does not answer")
			}
			return nodeagent.Answer{Remove: true}, nil
		})
		m.run(t)
		after(time.Second)
		m.wantRemoved(t, "without an answer")
		if r := m.last(t); asked.Load() != 1 || len(r.Removals) != 1 || r.Removals[0].Err == nil || r.RuntimeErr != nil || r.Short == nil {
			t.Errorf("asked %d times; report %+v", asked.Load(), r)
		}
		up.Store(true)
		after(10 * time.Minute)
		m.wantRemoved(t, "when it answers", "a", "b")
	})
}

func TestReview_WhatChangesInTheMeantimeKeepsTheImage(t *testing.T) {
	for what, change := range map[string]func(*machine){
		"a Pod names it":          func(m *machine) { m.needs.Images = []string{"registry.example.com/a:1"} },
		"it has another name":     func(m *machine) { m.node.Images[0].Names = []string{"registry.example.com/other:1"} },
		"the policy is gone":      func(m *machine) { m.policies = []noderetention.Policy{asking()} },
		"there is enough space":   func(m *machine) { m.use.Available = 900 },
		"the usage is not known":  func(m *machine) { m.useErr = errors.New("no such file") },
		"its container runs":      func(m *machine) { m.node.Containers = []noderetention.Container{{ID: "c", Images: []string{"a"}}} },
		"the Pods can't be read":  func(m *machine) { m.needsErr = errors.New("no connection") },
		"the zero answer is sent": nil,
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var m *machine
				m = reviewed(func(r nodeagent.Review) (nodeagent.Answer, error) {
					if change == nil || r.Image.ID != "a" {
						return nodeagent.Answer{}, nil
					}
					time.Sleep(2 * time.Second)
					m.change(func() { change(m) })
					return nodeagent.Answer{Remove: true}, nil
				})
				m.run(t)
				after(30 * time.Second)
				m.wantRemoved(t, "after the change")
			})
		})
	}
}

func TestReview_IsNotAskedForWithoutAPolicyThatSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := reviewed(func(nodeagent.Review) (nodeagent.Answer, error) {
			t.Error("it was asked")
			return nodeagent.Answer{}, nil
		})
		shown := asking()
		shown.Enforce = false
		m.policies = []noderetention.Policy{full(75, 70), shown}
		m.run(t)
		after(time.Second)
		m.wantRemoved(t, "at once", "a", "b")
	})
}
