package noderetention_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gleaner-dev/gleaner/operator/noderetention"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

var start = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func at(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }

func image(id string, names ...string) noderetention.Image {
	return noderetention.Image{ID: "sha256:" + id, Names: names, Size: 100}
}

// drained is a policy under which all images go that may.
func drained() noderetention.Policy {
	return noderetention.Policy{Name: "all", Enforce: true, Images: &noderetention.ImageLimits{MaxAge: time.Nanosecond}}
}

// removed returns the IDs of the images that policies remove when a node is observed twice, a minute apart.
func removed(n noderetention.Node, policies ...noderetention.Policy) []string {
	m := noderetention.NewImages(at(0))
	m.Observe(n, at(0))
	m.Observe(n, at(1))
	return ids(m.Plan(policies, nil, at(1)))
}

func ids(results []noderetention.Result) (list []string) {
	for _, r := range results {
		for _, i := range r.Removals {
			list = append(list, i.ID)
		}
	}
	return list
}

func check(t *testing.T, what string, want, got []string) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestP02_ImageInUse_StaysWhateverItIsCalled(t *testing.T) {
	const digest = "sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
	images := []noderetention.Image{
		image("a", "docker.io/library/busybox:latest"), image("b", "registry.example.com/web@"+digest), image("c", "registry.example.com:5000/db:1"), image("d"),
	}
	for reference, want := range map[string]string{
		"sha256:a": "sha256:a", "busybox": "sha256:a", "busybox:latest": "sha256:a", "docker.io/busybox": "sha256:a",
		"registry.example.com/web@" + digest: "sha256:b", digest: "sha256:b", "mirror.example.com/web@" + digest: "sha256:b",
		"registry.example.com:5000/db:1": "sha256:c", "sha256:d": "sha256:d",
	} {
		rest := []string{}
		for _, i := range images {
			if i.ID != want {
				rest = append(rest, i.ID)
			}
		}
		running := noderetention.Container{ID: "1", Name: "c", Pod: noderetention.Pod{UID: "p"}, Images: []string{reference}}
		check(t, "a container runs "+reference, rest, removed(noderetention.Node{Images: images, Complete: true, Containers: []noderetention.Container{running}}, drained()))
		check(t, "a Pod names "+reference, rest, removed(noderetention.Node{Images: images, Complete: true, Needed: []string{reference}}, drained()))
	}
}

func TestP02_ImageOfAnExitedContainer_StaysWhileThePodRuns(t *testing.T) {
	exited := noderetention.Container{ID: "1", Name: "c", Pod: noderetention.Pod{UID: "p"}, Exited: true, Images: []string{"sha256:a"}}
	node := noderetention.Node{Images: []noderetention.Image{image("a")}, Complete: true, Containers: []noderetention.Container{exited}}
	check(t, "no sandbox is known", nil, removed(node, drained()))
	node.Sandboxes = []noderetention.Sandbox{{PodUID: "p"}, {PodUID: "p", Ready: true}}
	check(t, "one sandbox is ready", nil, removed(node, drained()))
	node.Sandboxes = node.Sandboxes[:1]
	check(t, "the Pod has ended", []string{"sha256:a"}, removed(node, drained()))
	node.LivePods = []string{"p"}
	check(t, "the Pod has not ended for the API server", nil, removed(node, drained()))
}

func TestP02_Images_StayUntilAllThatMayUseThemIsKnown(t *testing.T) {
	node := noderetention.Node{Images: []noderetention.Image{image("a")}}
	check(t, "not all is read", nil, removed(node, drained()))
	node.Complete = true
	node.Containers = []noderetention.Container{{ID: "1", Name: "c", Pod: noderetention.Pod{UID: "p"}}}
	check(t, "a container does not say what it uses", nil, removed(node, drained()))
	node.Containers = nil
	check(t, "all is known", []string{"sha256:a"}, removed(node, drained()))
	node.Images[0].Pinned = true
	check(t, "it is pinned", nil, removed(node, drained()))
}

func TestP25_WhatOneEnforcedPolicyKeeps_NoOtherRemoves(t *testing.T) {
	node := noderetention.Node{Complete: true, Images: []noderetention.Image{
		image("a", "registry.example.com/base/go:1"), image("b", "registry.example.com/base@sha256:"), image("c", "registry.example.com/web:1"),
	}}
	all := []string{"sha256:a", "sha256:b", "sha256:c"}
	keeps := func(enforce bool, patterns ...string) noderetention.Policy {
		return noderetention.Policy{Name: "keeps", Enforce: enforce, Images: &noderetention.ImageLimits{Keep: patterns}}
	}
	check(t, "by name", all[1:], removed(node, drained(), keeps(true, "registry.example.com/base/*")))
	check(t, "by repository without a tag", all[:2], removed(node, drained(), keeps(true, "registry.example.com/web")))
	check(t, "by what is between two stars", all[1:], removed(node, drained(), keeps(true, "*/base/*")))
	check(t, "by all names", nil, removed(node, drained(), keeps(true, "*")))
	check(t, "a pattern is of the whole name", all, removed(node, drained(), keeps(true, "web", "base/*", "registry.example.com", "*:2", "*web:1*:1")))
	check(t, "in mode Monitor", all, removed(node, drained(), keeps(false, "*")))
	young := noderetention.Policy{Name: "young", Enforce: true, Images: &noderetention.ImageLimits{MinAge: time.Hour}}
	check(t, "by age", nil, removed(node, drained(), young))
}

func TestP05_MaxAge_IsOfTimeThatWasObserved(t *testing.T) {
	m := noderetention.NewImages(at(0))
	node := noderetention.Node{Complete: true, Images: []noderetention.Image{image("a"), image("b")}, Needed: []string{"sha256:a"}}
	policies := []noderetention.Policy{{Name: "old", Images: &noderetention.ImageLimits{MaxAge: 10 * time.Minute}}}
	m.Observe(node, at(0))
	node.Needed = nil
	m.Observe(node, at(5))
	result := m.Plan(policies, nil, at(5))[0]
	if want := at(10).Add(1); len(result.Removals) > 0 || !result.Next.Equal(want) || len(result.Upcoming) != 2 || !result.Upcoming[0].Due.Equal(want) {
		t.Errorf("after five minutes: %+v, want next at %s", result, want)
	}
	m.Observe(node, at(11))
	check(t, "one was never used, the other once", []string{"sha256:b", "sha256:a"}, ids(m.Plan(policies, nil, at(11))))
	m.Observe(noderetention.Node{Complete: true}, at(12))
	m.Observe(node, at(13)) // it was pulled again
	check(t, "pulled again", nil, ids(m.Plan(policies, nil, at(14))))
}

func TestP06_P08_UnderPressure_TheLeastRecentlyUsedGoFirst(t *testing.T) {
	m := noderetention.NewImages(at(0))
	node := noderetention.Node{Complete: true, Images: []noderetention.Image{image("a"), image("b"), image("c")}}
	for minute, used := range []string{"sha256:b", "sha256:c", "sha256:a"} {
		node.Needed = []string{used}
		m.Observe(node, at(minute))
	}
	node.Needed = nil
	m.Observe(node, at(5))
	limits := func(name string, enforce bool) noderetention.Policy {
		return noderetention.Policy{Name: name, Enforce: enforce, Images: &noderetention.ImageLimits{Usage: &retain.Watermarks{High: 80, Low: 60}}}
	}
	full := &retain.Usage{Capacity: 1000, Available: 200}
	check(t, "at the limit", []string{"sha256:b", "sha256:c"}, ids(m.Plan([]noderetention.Policy{limits("a", true)}, full, at(5))))
	check(t, "what one frees, another need not", []string{"sha256:b", "sha256:c"}, ids(m.Plan([]noderetention.Policy{limits("a", true), limits("b", true)}, full, at(5))))
	check(t, "the usage is not known", nil, ids(m.Plan([]noderetention.Policy{limits("a", true)}, nil, at(5))))
	fuller := m.Plan([]noderetention.Policy{limits("a", true)}, &retain.Usage{Capacity: 1000}, at(5))[0]
	if fuller.ToFree != 400 || fuller.Shortfall != 100 {
		t.Errorf("to free %d, shortfall %d, want 400 and 100", fuller.ToFree, fuller.Shortfall)
	}
}

func exited(pod, name string, minute int) noderetention.Container {
	created := at(minute)
	return noderetention.Container{ID: pod + name + created.Format("04"), Name: name, Pod: noderetention.Pod{UID: pod, Namespace: "shop", Name: pod}, Exited: true, Created: created}
}

func containerPolicy(name string, most, total int) noderetention.Policy {
	limits := &noderetention.ContainerLimits{}
	if most >= 0 {
		limits.MaxPerContainer = &most
	}
	if total >= 0 {
		limits.MaxTotal = &total
	}
	return noderetention.Policy{Name: name, Enforce: true, Containers: limits}
}

func TestP09_Containers_ThoseOfEndedPodsGoByNumber(t *testing.T) {
	node := noderetention.Node{Complete: true, Sandboxes: []noderetention.Sandbox{{PodUID: "p"}, {PodUID: "q"}}, Containers: []noderetention.Container{
		exited("p", "c", 1), exited("p", "c", 4), exited("p", "c", 2), exited("q", "c", 3), exited("q", "d", 5),
	}}
	check(t, "one of each", []string{"pc01", "pc02"}, ids(noderetention.PlanContainers(node, []noderetention.Policy{containerPolicy("a", 1, -1)}, at(9))))
	check(t, "the total gives less than one of each", []string{"pc01", "pc02", "qc03"}, ids(noderetention.PlanContainers(node, []noderetention.Policy{containerPolicy("a", 2, 2)}, at(9))))
	young := noderetention.Policy{Name: "young", Enforce: true, Containers: &noderetention.ContainerLimits{MinAge: 6 * time.Minute}}
	check(t, "what is young for another policy stays, and does not count", []string{"pc01"}, ids(noderetention.PlanContainers(node, []noderetention.Policy{containerPolicy("a", 1, -1), young}, at(9))))
}

func TestP02_LastContainerOfARunningPod_CountsAndStays(t *testing.T) {
	node := noderetention.Node{Complete: true, Sandboxes: []noderetention.Sandbox{{PodUID: "p", Ready: true}}, Containers: []noderetention.Container{
		exited("p", "c", 1), exited("p", "c", 2), exited("p", "c", 3),
	}}
	check(t, "none is to stay", []string{"pc01", "pc02"}, ids(noderetention.PlanContainers(node, []noderetention.Policy{containerPolicy("a", 0, 0)}, at(9))))
	check(t, "one is to stay", []string{"pc01", "pc02"}, ids(noderetention.PlanContainers(node, []noderetention.Policy{containerPolicy("a", 1, -1)}, at(9))))
	check(t, "two are to stay", []string{"pc01"}, ids(noderetention.PlanContainers(node, []noderetention.Policy{containerPolicy("a", 2, -1)}, at(9))))
	running := exited("p", "c", 4)
	running.Exited = false
	node.Containers = append(node.Containers, running)
	check(t, "it runs again", []string{"pc01", "pc02", "pc03"}, ids(noderetention.PlanContainers(node, []noderetention.Policy{containerPolicy("a", 0, -1)}, at(9))))
	node.Sandboxes[0].Ready = false
	check(t, "the Pod has ended, and none is to stay", []string{"pc01", "pc02", "pc03"}, ids(noderetention.PlanContainers(noderetention.Node{Complete: true, Sandboxes: node.Sandboxes, Containers: node.Containers[:3]}, []noderetention.Policy{containerPolicy("a", 0, -1)}, at(9))))
	check(t, "what the API server says is not read", []string{"pc01", "pc02"}, ids(noderetention.PlanContainers(noderetention.Node{Sandboxes: node.Sandboxes, Containers: node.Containers[:3]}, []noderetention.Policy{containerPolicy("a", 0, -1)}, at(9))))
	node.LivePods = []string{"p"}
	node.Containers = node.Containers[:3]
	check(t, "its sandbox has ended, and the Pod has not", []string{"pc01", "pc02"}, ids(noderetention.PlanContainers(node, []noderetention.Policy{containerPolicy("a", 0, -1)}, at(9))))
}

func TestP03_UseBetweenTwoRounds_IsThatOfTheContainerThatItLeft(t *testing.T) {
	m := noderetention.NewImages(at(0))
	node := noderetention.Node{Complete: true, Images: []noderetention.Image{image("a"), image("b")}}
	m.Observe(node, at(0))
	ran := exited("p", "c", 4)
	ran.Images = []string{"sha256:a"}
	node.Containers, node.Sandboxes = []noderetention.Container{ran}, []noderetention.Sandbox{{PodUID: "p"}}
	m.Observe(node, at(5))
	policies := []noderetention.Policy{{Name: "old", Images: &noderetention.ImageLimits{MaxAge: 10 * time.Minute}}}
	check(t, "one ran four minutes after the start", []string{"sha256:b"}, ids(m.Plan(policies, nil, at(12))))
}

func TestP19_ImageWhoseRemovalFailed_StaysForATime_AndOthersGoInItsPlace(t *testing.T) {
	m := noderetention.NewImages(at(0))
	node := noderetention.Node{Complete: true, Images: []noderetention.Image{image("a"), image("b")}}
	m.Observe(node, at(0))
	limits := []noderetention.Policy{{Name: "full", Images: &noderetention.ImageLimits{Usage: &retain.Watermarks{High: 80, Low: 75}}}}
	full := &retain.Usage{Capacity: 1000, Available: 200}
	check(t, "at first", []string{"sha256:a"}, ids(m.Plan(limits, full, at(1))))
	m.Hold("sha256:a", at(6), "its removal failed")
	check(t, "after the failure", []string{"sha256:b"}, ids(m.Plan(limits, full, at(2))))
	m.Observe(node, at(6))
	check(t, "later", []string{"sha256:a"}, ids(m.Plan(limits, full, at(6))))
}

func TestP23_ModeMonitor_GivesTheListOfModeEnforce(t *testing.T) {
	m := noderetention.NewImages(at(0))
	node := noderetention.Node{Complete: true, Sandboxes: []noderetention.Sandbox{{PodUID: "p"}}}
	for n := range 20 {
		node.Images = append(node.Images, image(fmt.Sprint(n)))
		node.Containers = append(node.Containers, exited("p", "c", n))
		node.Containers[n].Images = []string{"gone"}
	}
	m.Observe(node, at(0))
	p := containerPolicy("all", 3, 2)
	p.Images = &noderetention.ImageLimits{Usage: &retain.Watermarks{High: 80, Low: 40}}
	full, list := &retain.Usage{Capacity: 2000, Available: 200}, [2][]string{}
	for n, enforce := range []bool{false, true} {
		p.Enforce = enforce
		for range 2 {
			list[n] = append(ids(m.Plan([]noderetention.Policy{p}, full, at(30))), ids(noderetention.PlanContainers(node, []noderetention.Policy{p}, at(30)))...)
		}
	}
	check(t, "enforced, compared with monitored", list[0], list[1])
	if len(list[0]) != 10+18 {
		t.Errorf("%d removals: %q", len(list[0]), list[0])
	}
}
