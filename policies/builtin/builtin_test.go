package builtin_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

func owners(standings ...hostabi.OwnerStatus) []hostabi.Owner {
	var list []hostabi.Owner
	for _, s := range standings {
		list = append(list, hostabi.Owner{Status: s})
	}
	return list
}

func TestCollect_PropagatesAsKubernetes(t *testing.T) {
	const absent, waiting = hostabi.OwnerAbsent, hostabi.OwnerWaiting
	for name, c := range map[string]struct {
		owners     []hostabi.Owner
		dependents int
		finalizers []string
		want       hostabi.Propagation
	}{
		"G-49: owners gone":                                       {owners(absent), 0, nil, hostabi.PropagationBackground},
		"G-49: owners gone, dependents left":                      {owners(absent), 3, nil, hostabi.PropagationBackground},
		"G-49: a pre-placed orphan finalizer governs its subtree": {owners(absent), 3, []string{"orphan"}, hostabi.PropagationOrphan},
		"G-49: and so does foregroundDeletion":                    {owners(absent), 3, []string{"foregroundDeletion"}, hostabi.PropagationForeground},
		"G-48: an owner waits and there are dependents":           {owners(absent, waiting), 1, []string{"orphan"}, hostabi.PropagationForeground},
		"G-49: an owner waits for a leaf":                         {owners(waiting), 0, nil, hostabi.PropagationBackground},
		"G-49: an owner waits for a leaf that is to orphan":       {owners(waiting), 0, []string{"orphan"}, hostabi.PropagationOrphan},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := builtin.Policy{}.Evaluate(t.Context(), hostabi.Request{
				Hook: hostabi.HookCollect, Owners: c.owners, Dependents: hostabi.Dependents{Count: c.dependents},
				Object: hostabi.Object{Metadata: hostabi.Metadata{Finalizers: c.finalizers}},
			})
			if err != nil {
				t.Fatal(err)
			}
			want := hostabi.Verdict{Decision: hostabi.DecisionDelete, Propagation: c.want}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// Every combination of up to three owners: none is deleted with an owner that
// is anything but lost.
func TestCollect_NeverDeletesWithOwnerLeft(t *testing.T) {
	standings := []hostabi.OwnerStatus{
		"", hostabi.OwnerUnknown, hostabi.OwnerPresent, hostabi.OwnerAbsent, hostabi.OwnerWaiting,
		hostabi.OwnerOrphaning, hostabi.OwnerUnresolvable, "Invented",
	}
	combinations := [][]hostabi.OwnerStatus{{}}
	for i := 0; i < len(combinations); i++ {
		if c := combinations[i]; len(c) < 3 {
			for _, s := range standings {
				combinations = append(combinations, append(append([]hostabi.OwnerStatus{}, c...), s))
			}
		}
	}
	for _, c := range combinations {
		verdict, err := builtin.Policy{}.Evaluate(t.Context(), hostabi.Request{Hook: hostabi.HookCollect, Owners: owners(c...)})
		if err != nil {
			t.Fatal(err)
		}
		lost := len(c) != 0
		for _, s := range c {
			lost = lost && (s == hostabi.OwnerAbsent || s == hostabi.OwnerWaiting)
		}
		if deleted := verdict.Decision == hostabi.DecisionDelete; deleted != lost {
			t.Errorf("owners %v: deleted is %t", c, deleted)
		}
	}
}

func TestPropagate_FollowsClient(t *testing.T) {
	for requested, want := range map[hostabi.RequestedPropagation]hostabi.Decision{
		"":                           hostabi.DecisionBackground,
		hostabi.RequestedUnspecified: hostabi.DecisionBackground,
		hostabi.RequestedForeground:  hostabi.DecisionForeground,
		hostabi.RequestedOrphan:      hostabi.DecisionOrphan,
	} {
		t.Run(fmt.Sprintf("%q", requested), func(t *testing.T) {
			got, err := builtin.Policy{}.Evaluate(t.Context(), hostabi.Request{Hook: hostabi.HookPropagate, RequestedPropagation: requested})
			if err != nil || got.Decision != want {
				t.Errorf("got %v, %v; want %s", got, err, want)
			}
		})
	}
}

func TestEvaluate_RejectsUnknownHook(t *testing.T) {
	got, err := builtin.Policy{}.Evaluate(t.Context(), hostabi.Request{Hook: "invent"})
	fault := new(policies.Fault)
	if !errors.As(err, &fault) || !cmp.Equal(got, hostabi.Verdict{}) {
		t.Errorf("got %v, %v", got, err)
	}
}
