package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/memo"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// actionOn says what the operator would do with a verdict, by its own planner.
// The zero Verdict stands for a policy at fault. It is empty for hooks that the
// planner has no part in.
func actionOn(ctx context.Context, r hostabi.Request, v hostabi.Verdict) string {
	if r.Hook != hostabi.HookCollect && r.Hook != hostabi.HookPropagate {
		return ""
	}
	situation := decide.Classify(factsOf(r))
	if situation.Kind != decide.Ownerless && situation.Kind != decide.Held {
		return "nobody is asked: " + planned(decide.Choose(situation, decide.Judgement{}))
	}
	usual, _ := builtin.Policy{}.Evaluate(ctx, r) // it knows both hooks
	switch {
	case v.Decision == hostabi.DecisionAct:
		return reads(v.Intents) + ", and ask again"
	case v.Decision == hostabi.DecisionAbstain:
		return "ask the next policy; without one, " + planned(choose(situation, r, usual))
	case v.Decision == hostabi.DecisionDelete && v.Propagation == "":
		v.Propagation = usual.Propagation
	}
	action := planned(choose(situation, r, v))
	for _, d := range v.Dependents {
		action += fmt.Sprintf("; dependents of kind %s: %s", d.Kind, d.Decision)
	}
	return action
}

// choose makes the plan with all remembered that is to be: a plan to write that
// down first says nothing about the verdict.
func choose(s decide.Situation, r hostabi.Request, v hostabi.Verdict) decide.Plan {
	m := memo.Memo{UID: s.Facts.Object.UID}
	if r.OwnerlessSince != nil {
		m.OwnerlessSince = *r.OwnerlessSince
	}
	return decide.Choose(s, decide.Judgement{Verdict: v, Fault: v.Decision == "", Memo: m, Remembered: m, Now: r.Time})
}

var decided = map[hostabi.Standing]decide.Standing{
	hostabi.StandingPresent:      decide.Present,
	hostabi.StandingAbsent:       decide.Absent,
	hostabi.StandingWaiting:      decide.Waiting,
	hostabi.StandingOrphaning:    decide.Orphaning,
	hostabi.StandingUnresolvable: decide.Unresolvable,
}

// factsOf takes a request for the facts that it would have come of.
func factsOf(r hostabi.Request) decide.Facts {
	meta := r.Object.Metadata
	f := decide.Facts{
		Object: graph.Object{
			UID: types.UID(meta.UID), ResourceVersion: meta.ResourceVersion, Name: meta.Name, Namespace: meta.Namespace,
			Kind:        schema.FromAPIVersionAndKind(r.Object.APIVersion, r.Object.Kind),
			Terminating: meta.DeletionTimestamp != nil,
			Orphan:      slices.Contains(meta.Finalizers, metav1.FinalizerOrphanDependents),
			Foreground:  slices.Contains(meta.Finalizers, metav1.FinalizerDeleteDependents),
		},
		Dependents: r.Dependents.Count,
	}
	if r.Hook == hostabi.HookPropagate {
		f.Object.Held = true
		f.Object.Orphan = f.Object.Orphan || r.Requested == hostabi.RequestedOrphan
		f.Object.Foreground = f.Object.Foreground || r.Requested == hostabi.RequestedForeground
	}
	for _, owner := range r.Owners {
		ref := metav1.OwnerReference{
			APIVersion: owner.Reference.APIVersion, Kind: owner.Reference.Kind, Name: owner.Reference.Name, UID: types.UID(owner.Reference.UID),
			Controller: owner.Reference.Controller, BlockOwnerDeletion: owner.Reference.BlockOwnerDeletion,
		}
		f.Object.Owners = append(f.Object.Owners, ref)
		f.Owners = append(f.Owners, decide.Owner{Reference: ref, Standing: decided[owner.Standing]})
	}
	return f
}

// planned puts a plan into words.
func planned(p decide.Plan) string {
	why := ""
	if p.Reason != decide.NothingToDo {
		why = fmt.Sprintf(" (%s)", p.Reason)
	}
	return deed(p) + why
}

func deed(p decide.Plan) string {
	switch a := p.Action.(type) {
	case decide.Delete:
		text := "delete in " + strings.ToLower(string(a.Propagation))
		if a.Propagation == metav1.DeletePropagationOrphan {
			text = "delete, and keep its dependents"
		}
		if a.GracePeriodSeconds != nil {
			text += fmt.Sprintf(", with %ds to end", *a.GracePeriodSeconds)
		}
		return text
	case decide.Propagate:
		return "delete once more, with " + string(a.Propagation)
	case decide.DropReferences:
		return "keep, and drop " + counted(len(a.References), "owner reference", "owner references")
	case decide.RemoveFinalizer:
		return "take off the finalizer " + a.Finalizer
	case nil:
		switch {
		case p.After != 0:
			return "keep, and look again in " + p.After.String()
		case p.Retry:
			return "keep, and try again"
		}
		return "do nothing"
	default:
		return fmt.Sprintf("%T", a)
	}
}

// reads says what a module asks to read.
func reads(intents []hostabi.Intent) string {
	var all []string
	for _, intent := range intents {
		switch {
		case intent.Get != nil:
			all = append(all, fmt.Sprintf("get %s %s", intent.Get.Kind, intent.Get.Name))
		case intent.List != nil:
			all = append(all, "list "+intent.List.Kind)
		}
	}
	return strings.Join(all, ", ")
}
