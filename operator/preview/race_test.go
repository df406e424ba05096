package preview

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/survey"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/fixed"
)

var configMap = schema.GroupVersionKind{Version: "v1", Kind: "ConfigMap"}

// fromFile returns a survey of a file. Each line is an object: its name, its finalizers in
// brackets, and after < its owners, with ! those whose deletion it blocks.
func fromFile(t *testing.T, lines []string) *survey.Survey {
	t.Helper()
	var objects []*unstructured.Unstructured
	for _, line := range lines {
		o := &unstructured.Unstructured{Object: map[string]any{}}
		o.SetGroupVersionKind(configMap)
		o.SetNamespace("ns")
		about, owners, _ := strings.Cut(line, "<")
		for i, word := range strings.Fields(about) {
			if i == 0 {
				o.SetName(word)
				o.SetUID(types.UID(word))
				continue
			}
			o.SetFinalizers(append(o.GetFinalizers(), strings.Trim(word, "[]")))
		}
		var refs []metav1.OwnerReference
		for _, owner := range strings.Fields(owners) {
			name, blocks := strings.CutPrefix(owner, "!")
			refs = append(refs, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: types.UID(name), BlockOwnerDeletion: ptr.To(blocks)})
		}
		o.SetOwnerReferences(refs)
		objects = append(objects, o)
	}
	s, err := survey.Files(objects, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// outcomes returns the outcomes of deleting the object called root.
func outcomes(t *testing.T, cascade metav1.DeletionPropagation, lines []string, governing ...*policies.Policy) map[string]string {
	t.Helper()
	p, err := Delete(t.Context(), Options{
		Survey: fromFile(t, lines), Targets: []graph.ID{graph.IDOf("root")}, Cascade: cascade, Now: time.Now(),
		Policies: &Reading{Policies: policies.NewSet(governing)},
	})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, o := range p.Objects {
		found[o.Name] = o.Outcome.String()
		if o.Reason == "Race" {
			found[o.Name] += ", a race"
		}
	}
	return found
}

func TestRace_OwnerOrderIsUnknown(t *testing.T) {
	const foreground, background, orphan = metav1.DeletePropagationForeground, metav1.DeletePropagationBackground, metav1.DeletePropagationOrphan
	for claim, c := range map[string]struct {
		cascade metav1.DeletionPropagation
		objects []string
		want    map[string]string
	}{
		"a blocking dependent is deleted in the foreground, with its dependents": {
			foreground, []string{"root", "middle [orphan] < !root", "leaf < middle"},
			map[string]string{"root": "Goes", "middle": "Goes", "leaf": "Goes"},
		},
		"one that its owner does not wait for may be deleted after it, and leave its dependents": {
			foreground, []string{"root", "middle [orphan] < root", "leaf < middle"},
			map[string]string{"root": "Goes", "middle": "Goes", "leaf": "Unknown, a race"},
		},
		"without an owner that waits it leaves its dependents for certain": {
			background, []string{"root", "middle [orphan] < !root", "leaf < middle"},
			map[string]string{"root": "Goes", "middle": "Goes", "leaf": "Stays"},
		},
		"an object with another owner is kept in any order": {
			foreground, []string{"root", "other", "middle [orphan] < root", "leaf < middle other"},
			map[string]string{"root": "Goes", "middle": "Goes", "leaf": "Stays"},
		},
		"nothing is a race that is orphaned": {
			orphan, []string{"root", "middle [orphan] < root", "leaf < middle"},
			map[string]string{"root": "Goes", "middle": "Stays", "leaf": "Stays"},
		},
	} {
		t.Run(claim, func(t *testing.T) {
			if diff := cmp.Diff(c.want, outcomes(t, c.cascade, c.objects)); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestRace_TimingDependsOnOwnerOrder(t *testing.T) {
	const foreground, background = metav1.DeletePropagationForeground, metav1.DeletePropagationBackground
	for claim, c := range map[string]struct {
		cascade metav1.DeletionPropagation
		objects []string
		want    map[string]string
	}{
		"foreground deletion in any order waits for blocking dependents": {
			foreground, []string{"root", "middle < !root", "leaf [example.com/a] < !middle"},
			map[string]string{"root": "Waits", "middle": "Waits", "leaf": "Waits"},
		},
		"one that may go in another way may not wait": {
			foreground, []string{"root", "middle < root", "leaf [example.com/a] < !middle"},
			map[string]string{"root": "Goes", "middle": "Unknown, a race", "leaf": "Waits"},
		},
		"one that a dependent may drop which has another owner may not wait": {
			foreground, []string{"root", "one < !root", "two < !root", "leaf [example.com/a] < !one !two"},
			map[string]string{"root": "Unknown, a race", "one": "Unknown, a race", "two": "Unknown, a race", "leaf": "Waits"},
		},
		"no waits without foreground deletion": {
			background, []string{"root", "middle < !root", "leaf [example.com/a] < !middle"},
			map[string]string{"root": "Goes", "middle": "Goes", "leaf": "Waits"},
		},
	} {
		t.Run(claim, func(t *testing.T) {
			if diff := cmp.Diff(c.want, outcomes(t, c.cascade, c.objects)); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
		})
	}
}

// onMiddleObject is a policy about the dependents of the object called middle.
func onMiddleObject(t *testing.T, decision hostabi.Propagation, override bool) *policies.Policy {
	t.Helper()
	verdict, err := fixed.New("p", map[hostabi.Hook][]byte{hostabi.HookPropagate: []byte(`{"decision": "` + decision + `"}`)})
	if err != nil {
		t.Fatal(err)
	}
	return &policies.Policy{
		Name: "p", Enforce: true, OverrideExplicit: override, Hooks: []hostabi.Hook{hostabi.HookPropagate}, Needs: policies.NeedsReference, Evaluator: fixedEvaluator{verdict},
		Rules: []policies.Rule{{Groups: []string{""}, Resources: []string{"configmaps"}}},
		Matches: func(_ context.Context, o map[string]any) (bool, error) {
			return o["metadata"].(map[string]any)["name"] == "middle", nil
		},
	}
}

func TestRace_NotIfAPolicyDecides(t *testing.T) {
	lines := []string{"root", "middle [gleaner.dev/hold] < root", "leaf [example.com/a] < !middle"}
	want := map[string]string{"root": "Goes", "middle": "Waits", "leaf": "Waits"}
	got := outcomes(t, metav1.DeletePropagationBackground, lines, onMiddleObject(t, hostabi.PropagationForeground, false))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("outcomes (-want +got):\n%s", diff)
	}
}

// Foreground deletion because of the owner counts as the client's request, so a policy
// without override is not evaluated.
func TestRace_EvaluationDependsOnOwnerOrder(t *testing.T) {
	const foreground = metav1.DeletePropagationForeground
	for claim, c := range map[string]struct {
		objects []string
		policy  *policies.Policy
		want    map[string]string
	}{
		"an owner that waits for it for certain is there when it is deleted: none is": {
			[]string{"root", "middle [gleaner.dev/hold] < !root", "leaf < middle"}, onMiddleObject(t, hostabi.PropagationOrphan, false),
			map[string]string{"root": "Goes", "middle": "Goes", "leaf": "Goes"},
		},
		"an owner that does not wait for it may be there, or not": {
			[]string{"root", "middle [gleaner.dev/hold] < root", "leaf < middle"}, onMiddleObject(t, hostabi.PropagationOrphan, false),
			map[string]string{"root": "Goes", "middle": "Goes", "leaf": "Unknown, a race"},
		},
		"an owner that waits for others may be there, or not": {
			[]string{"root", "other [example.com/a] < !root", "middle [gleaner.dev/hold] < root", "leaf < middle"}, onMiddleObject(t, hostabi.PropagationOrphan, false),
			map[string]string{"root": "Waits", "other": "Waits", "middle": "Goes", "leaf": "Unknown, a race"},
		},
		"a policy with override is evaluated in any order": {
			[]string{"root", "middle [gleaner.dev/hold] < root", "leaf < middle"}, onMiddleObject(t, hostabi.PropagationOrphan, true),
			map[string]string{"root": "Goes", "middle": "Goes", "leaf": "Stays"},
		},
		"an object with another owner is kept in any order": {
			[]string{"root", "other", "middle [gleaner.dev/hold] < root", "leaf < middle other"}, onMiddleObject(t, hostabi.PropagationOrphan, false),
			map[string]string{"root": "Goes", "middle": "Goes", "leaf": "Stays"},
		},
	} {
		t.Run(claim, func(t *testing.T) {
			if diff := cmp.Diff(c.want, outcomes(t, foreground, c.objects, c.policy)); diff != "" {
				t.Errorf("outcomes (-want +got):\n%s", diff)
			}
		})
	}
}

// fixedEvaluator returns fixed verdicts.
type fixedEvaluator struct{ *fixed.Policy }

// EvaluateMetered implements policies.Evaluator.
func (a fixedEvaluator) EvaluateMetered(ctx context.Context, r hostabi.Request) (policies.Evaluation, error) {
	verdict, err := a.Evaluate(ctx, r)
	return policies.Evaluation{Verdict: verdict}, err
}
