package order_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/order"
)

var (
	pod, secret, job = schema.GroupKind{Kind: "Pod"}, schema.GroupKind{Kind: "Secret"}, schema.GroupKind{Group: "batch", Kind: "Job"}
	kept             = schema.GroupKind{Kind: "PersistentVolumeClaim"}
	owner            = graph.IDOf("6f0b6c1e-0000-4000-8000-000000000001")
)

func dependents(kinds ...schema.GroupKind) []graph.KindCount {
	var list []graph.KindCount
	for _, kind := range kinds {
		list = append(list, graph.KindCount{Kind: kind, Count: 2})
	}
	return list
}

func TestOf_OnlyForegroundWithAnOrderOrAGracePeriod(t *testing.T) {
	for name, v := range map[string]hostabi.Verdict{
		"no decision":                {Order: []hostabi.Wave{{{Kind: "Pod"}}}},
		"another decision":           {Decision: hostabi.DecisionOrphan, Order: []hostabi.Wave{{{Kind: "Pod"}}}},
		"neither":                    {Decision: hostabi.DecisionForeground},
		"a grace period of a delete": {Decision: hostabi.DecisionDelete, GracePeriodSeconds: ptr.To[int64](3)},
	} {
		if o, ok := order.Of(v); ok {
			t.Errorf("%s: %+v", name, o)
		}
	}
	o, ok := order.Of(hostabi.Verdict{
		Decision: hostabi.DecisionForeground, GracePeriodSeconds: ptr.To[int64](0), Order: []hostabi.Wave{{{Kind: "Pod"}, {Group: "batch", Kind: "Job"}}, {{Kind: "Secret"}}},
	})
	want := order.Order{Waves: [][]schema.GroupKind{{pod, job}, {secret}}, GracePeriodSeconds: ptr.To[int64](0)}
	if diff := cmp.Diff(want, o); !ok || diff != "" {
		t.Error(ok, diff)
	}
	if diff := cmp.Diff([]schema.GroupKind{pod, job, secret}, o.Kinds()); diff != "" {
		t.Error(diff)
	}
}

func TestCurrent_IsTheFirstWaveWithDependents(t *testing.T) {
	o := order.Order{Waves: [][]schema.GroupKind{{pod}, {secret}}, Kept: []schema.GroupKind{kept}}
	for name, c := range map[string]struct {
		dependents []graph.KindCount
		want       int
	}{
		"all kinds":          {dependents(secret, job, pod), 0},
		"later kinds":        {dependents(job, secret), 1},
		"kinds in no wave":   {dependents(job), 2},
		"nothing":            {nil, 3},
		"what is kept":       {dependents(kept), 3},
		"a kind without any": {[]graph.KindCount{{Kind: pod}}, 3},
	} {
		if got := o.Current(c.dependents); got != c.want {
			t.Errorf("%s: wave %d, want %d", name, got, c.want)
		}
	}
}

// If it is unknown, or has not started, dependents are kept.
func TestStatusOf_IsStartedOnceItsWaveIs(t *testing.T) {
	var p order.Progress
	if status, ordered := p.StatusOf(owner, pod); ordered || status.Started {
		t.Errorf("an unknown owner: %+v", status)
	}
	p.Set(owner, order.State{Wave: order.NotBegun})
	if status, ordered := p.StatusOf(owner, pod); ordered || status.Started {
		t.Errorf("an owner without an order: %+v", status)
	}
	o := order.Order{Waves: [][]schema.GroupKind{{pod}, {secret}}}
	started := func(wave int) (all [3]bool) {
		p.Set(owner, order.State{Order: o, Wave: wave})
		for i, kind := range []schema.GroupKind{pod, secret, job} {
			status, ordered := p.StatusOf(owner, kind)
			if !ordered || status.Message == "" {
				t.Errorf("wave %d, %s: %+v", wave, kind, status)
			}
			all[i] = status.Started
		}
		return all
	}
	got := [][3]bool{started(order.NotBegun), started(0), started(1), started(2)}
	if diff := cmp.Diff([][3]bool{{}, {true}, {true, true}, {true, true, true}}, got); diff != "" {
		t.Error(diff)
	}
	p.Forget(owner)
	if _, known := p.Get(owner); known || p.IsOrdered(owner) {
		t.Error("it is not forgotten")
	}
}

func TestStatusOf_IsNeverStartedForWhatIsKept(t *testing.T) {
	var p order.Progress
	o, _ := order.Of(hostabi.Verdict{
		Decision: hostabi.DecisionForeground, GracePeriodSeconds: ptr.To[int64](3),
		Dependents: []hostabi.DependentDecision{{Kind: kept.Kind, Decision: hostabi.DecisionOrphan}, {Kind: "Pod", Decision: hostabi.DecisionDelete}},
	})
	for wave := order.NotBegun; wave <= 1; wave++ {
		p.Set(owner, order.State{Order: o, Wave: wave})
		if status, ordered := p.StatusOf(owner, kept); !ordered || status.Started {
			t.Errorf("wave %d: %+v, %t", wave, status, ordered)
		}
	}
	if status, _ := p.StatusOf(owner, pod); !status.Started || !strings.Contains(status.Message, "everything below it is deleted with a grace period of 3s") {
		t.Errorf("what is to be deleted: %+v", status)
	}
}

func TestDescribe_NamesTheKinds(t *testing.T) {
	o := order.Order{Waves: [][]schema.GroupKind{{pod, job}, {secret}}}
	for wave, want := range []string{"wave 1 of 2 (Pod, Job.batch)", "wave 2 of 2 (Secret)", "the last wave (kinds that are in no other wave)"} {
		if got := o.Describe(wave); got != want {
			t.Errorf("wave %d: %q", wave, got)
		}
	}
	if got := (order.Order{GracePeriodSeconds: ptr.To[int64](3)}).Describe(0); got != "everything below it" {
		t.Errorf("without waves: %q", got)
	}
}
