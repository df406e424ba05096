package test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

// actionOn describes the action of the operator for a verdict, as planned by package decide.
// The zero Verdict is a policy fault. It returns "" for hooks without a plan.
func actionOn(ctx context.Context, r hostabi.Request, v hostabi.Verdict) string {
	switch r.Hook {
	case hostabi.HookCollect, hostabi.HookPropagate:
	case hostabi.HookProtect:
		return answerTo(v)
	case hostabi.HookRetain:
		return removalFor(v)
	default:
		return ""
	}
	situation := decide.Classify(factsOf(r))
	if situation.Kind != decide.Ownerless && situation.Kind != decide.Held {
		return "no policy is evaluated: " + describePlan(decide.Choose(situation, decide.PolicyResult{}))
	}
	usual, _ := builtin.Policy{}.Evaluate(ctx, r) // it supports both hooks
	switch {
	case v.Decision == hostabi.DecisionAct:
		return describeReads(v.Intents) + ", then evaluate again"
	case v.Decision == hostabi.DecisionAbstain:
		return "evaluate the next policy, or by default: " + describePlan(choosePlan(situation, r, usual))
	case v.Decision == hostabi.DecisionDelete && v.Propagation == "":
		v.Propagation = usual.Propagation
	}
	action := describePlan(choosePlan(situation, r, v))
	for _, d := range v.Dependents {
		action += fmt.Sprintf("; dependents of kind %s: %s", d.Kind, d.Decision)
	}
	return action
}

// answerTo describes what a user who requests a deletion gets.
func answerTo(v hostabi.Verdict) string {
	switch v.Decision {
	case hostabi.DecisionAllow:
		return "allow the request"
	case hostabi.DecisionDeny:
		return "deny the request"
	case hostabi.DecisionAct:
		return describeReads(v.Intents) + ", then evaluate again"
	case hostabi.DecisionAbstain:
		return "evaluate the next policy, or by default: allow the request"
	default:
		return "deny the request (PolicyFault), unless onFault is Default"
	}
}

// removalFor describes what happens to an object that a retention policy removes.
func removalFor(v hostabi.Verdict) string {
	switch v.Decision {
	case hostabi.DecisionRemove:
		return "remove the object"
	case hostabi.DecisionKeep:
		if v.After != 0 {
			return fmt.Sprintf("keep the object, and evaluate again after %s", time.Duration(v.After))
		}
		return "keep the object, and evaluate again later"
	case hostabi.DecisionAct:
		return describeReads(v.Intents) + ", then evaluate again"
	case hostabi.DecisionAbstain:
		return "evaluate the next policy, or by default: remove the object"
	default:
		return "keep the object (PolicyFault), unless onFault is Default"
	}
}

// choosePlan returns the plan with the state already saved: a plan to save the state first would
// not show the effect of the verdict.
func choosePlan(s decide.Situation, r hostabi.Request, v hostabi.Verdict) decide.Plan {
	m := objectstate.State{UID: s.Facts.Object.UID}
	if r.OwnersAbsentSince != nil {
		m.OwnersAbsentSince = *r.OwnersAbsentSince
	}
	return decide.Choose(s, decide.PolicyResult{Verdict: v, Fault: v.Decision == "", State: m, StoredState: m, Now: r.Time})
}

var ownerStatuses = map[hostabi.OwnerStatus]decide.OwnerStatus{
	hostabi.OwnerPresent:      decide.Present,
	hostabi.OwnerAbsent:       decide.Absent,
	hostabi.OwnerWaiting:      decide.Waiting,
	hostabi.OwnerOrphaning:    decide.Orphaning,
	hostabi.OwnerUnresolvable: decide.Unresolvable,
}

// factsOf returns facts that would lead to the request.
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
		f.Object.Orphan = f.Object.Orphan || r.RequestedPropagation == hostabi.RequestedOrphan
		f.Object.Foreground = f.Object.Foreground || r.RequestedPropagation == hostabi.RequestedForeground
	}
	for _, owner := range r.Owners {
		ref := metav1.OwnerReference{
			APIVersion: owner.Reference.APIVersion, Kind: owner.Reference.Kind, Name: owner.Reference.Name, UID: types.UID(owner.Reference.UID),
			Controller: owner.Reference.Controller, BlockOwnerDeletion: owner.Reference.BlockOwnerDeletion,
		}
		f.Object.Owners = append(f.Object.Owners, ref)
		f.Owners = append(f.Owners, decide.Owner{Reference: ref, Status: ownerStatuses[owner.Status]})
	}
	return f
}

// describePlan describes a plan.
func describePlan(p decide.Plan) string {
	why := ""
	if p.Reason != decide.NothingToDo {
		why = fmt.Sprintf(" (%s)", p.Reason)
	}
	return describeAction(p) + why
}

func describeAction(p decide.Plan) string {
	switch a := p.Action.(type) {
	case decide.Delete:
		text := "delete in " + strings.ToLower(string(a.Propagation))
		if a.Propagation == metav1.DeletePropagationOrphan {
			text = "delete and orphan its dependents"
		}
		if a.GracePeriodSeconds != nil {
			text += fmt.Sprintf(", with a grace period of %ds", *a.GracePeriodSeconds)
		}
		return text
	case decide.Propagate:
		return "delete again with propagation policy " + string(a.Propagation)
	case decide.DropReferences:
		return "keep and remove " + printer.Count(len(a.References), "owner reference", "owner references")
	case decide.RemoveFinalizer:
		return "remove the finalizer " + a.Finalizer
	case nil:
		switch {
		case p.RequeueAfter != 0:
			return "keep and check again in " + p.RequeueAfter.String()
		case p.Retry:
			return "keep and retry"
		}
		return "do nothing"
	default:
		return fmt.Sprintf("%T", a)
	}
}

// describeReads describes the read intents of a module.
func describeReads(intents []hostabi.Intent) string {
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
