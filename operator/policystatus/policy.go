package policystatus

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/admission"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/graceperiod"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/protect"
	"github.com/gleaner-dev/gleaner/policies"
)

// describePolicy sets the status of a policy.
func (w *Writer) describePolicy(snapshot *policyset.Snapshot, v view, p *policyset.Policy, s *v1alpha1.GCPolicyStatus) {
	s.ObservedGeneration = p.Object.GetGeneration()
	s.Digest, s.Engine, s.Hooks, s.ABI = p.Policy.Digest, p.Engine, nil, ""
	s.Needs = needs(&p.Declaration)
	if p.Policy.Evaluator != nil {
		s.Hooks, s.ABI = hookNames(p.Policy.Hooks), hostabi.Version
	}
	s.Held = held(p, v.held)
	s.Decisions = w.options.Observations.decisionsOf(p.Policy.String())
	s.Resources = governed(p)
	to := setterOf(&s.Conditions, p.Object)
	w.describeReadiness(&p.Declaration, to, meanwhile(p))
	w.describeEnforcing(v, p, to)
	describeOverlapping(snapshot, p, to)
}

// needs returns how much of the object a module receives; "" if none is evaluated.
func needs(d *policyset.Declaration) v1alpha1.Need {
	if d.Policy.Evaluator == nil || d.Engine == v1alpha1.EngineFixed {
		return ""
	}
	return v1alpha1.Need(policies.LeastNeeds(policies.NeedsObject, d.Policy.Needs))
}

const noCollectorFix = "no other garbage collector is running: start kube-controller-manager with its garbage-collector-controller, or run Gleaner with --collector=primary"

// describeEnforcing sets whether the decisions of a policy are carried out.
func (w *Writer) describeEnforcing(v view, p *policyset.Policy, to setter) {
	absent, misordered := w.notGoverned(&p.Declaration), w.misordered(p)
	withheld := w.options.Observations.withheldFrom(&p.Declaration, withheldLife)
	switch {
	case !p.Policy.Enforce:
		to.set(v1alpha1.ConditionEnforcing, false, "Monitor", "it decides and records, and changes nothing: write mode: Enforce for that")
	case !p.Problem.IsZero():
		to.set(v1alpha1.ConditionEnforcing, false, "NotReady", "it can't be evaluated"+meanwhile(p))
	case !absent.IsZero():
		to.set(v1alpha1.ConditionEnforcing, false, absent.Reason, absent.Message)
	case misordered != "":
		to.set(v1alpha1.ConditionEnforcing, false, reasonNotServed, misordered)
	case withheld != "":
		to.set(v1alpha1.ConditionEnforcing, false, reasonWithheld, keptWithheld+withheld)
	case !v.complete():
		v.describePending(to)
	case !v.primary && describeCompanion(v.companion, p, to):
	case v.protect.Failed.Of(protect.Name(p)) != nil && protect.Protects(p):
		to.set(v1alpha1.ConditionEnforcing, false, "NotProtected", "users can delete what it protects: "+v.protect.Failed.Of(protect.Name(p)).Error())
	case p.RequiresHold() && v.admission.Failed.Of(admission.HoldName(p)) != nil:
		to.set(v1alpha1.ConditionEnforcing, true, "HoldsComeLate", "its decisions are carried out, but holds are added only after an object was created: "+
			v.admission.Failed.Of(admission.HoldName(p)).Error())
	case p.Spec.Fixed != nil && graceperiod.Inherits(p) && v.gracePeriods.Failed.Of(graceperiod.ConfigurationName) != nil:
		to.set(v1alpha1.ConditionEnforcing, true, "GracePeriodNotInherited", "its decisions are carried out, but dependents don't inherit the grace period of requests: "+
			v.gracePeriods.Failed.Of(graceperiod.ConfigurationName).Error())
	case !v.primary && companion.Refuses(p) && v.companion.Refusals.Of(companion.RefusalName(p)) != nil:
		to.set(v1alpha1.ConditionEnforcing, true, "OrphanNotRefused", "its decisions are carried out, but a client that asks for Orphan may get it: "+
			v.companion.Refusals.Of(companion.RefusalName(p)).Error())
	case w.options.Observations.isLimited(p.Policy.String()):
		to.set(v1alpha1.ConditionEnforcing, true, "RateLimited", "its decisions are carried out, but later: the policy, or all policies about objects of one namespace, "+
			"write more states than they may: have the module wait for longer, and change its state less often")
	default:
		to.set(v1alpha1.ConditionEnforcing, true, "Enforcing", "its decisions are carried out")
	}
}

// describeCompanion sets Enforcing in companion mode if something is wrong, and reports
// whether it did.
func describeCompanion(c *companion.Status, p *policyset.Policy, to setter) bool {
	missing, collects := c.Presence == companion.Missing, p.Policy.HasHook(hostabi.HookCollect)
	notVetoed := c.Vetoes
	if notVetoed == nil {
		notVetoed = c.Mismatch
	}
	switch {
	case missing && p.RequiresHold():
		to.set(v1alpha1.ConditionEnforcing, false, reasonNoCollector, "it decides about dependents, and nothing carries that out, since "+noCollectorFix)
	case missing:
		to.set(v1alpha1.ConditionEnforcing, true, reasonNoCollector, "its decisions are carried out, and nothing collects the rest, since "+noCollectorFix)
	case notVetoed != nil && collects:
		to.set(v1alpha1.ConditionEnforcing, false, "NotVetoed", "the built-in garbage collector deletes what it would keep: "+notVetoed.Error())
	case c.Unverified != "" && collects && c.Final:
		to.set(v1alpha1.ConditionEnforcing, false, reasonNotVerified, "the built-in garbage collector may delete what it would keep: "+c.Unverified)
	case c.Unverified != "" && collects:
		to.set(v1alpha1.ConditionEnforcing, false, "Verifying", "Gleaner is checking whether the API server calls its webhook when the built-in garbage collector deletes")
	default:
		return false
	}
	return true
}

// describePending sets Enforcing while it is not known what is installed: what was written
// stays for a while.
func (v view) describePending(to setter) {
	if time.Since(v.since) < installTimeout && meta.FindStatusCondition(*to.conditions, v1alpha1.ConditionEnforcing) != nil {
		return
	}
	to.setStatus(v1alpha1.ConditionEnforcing, metav1.ConditionUnknown, "Installing",
		"its admission objects are being installed; until they are, holds are added after objects were created")
}

// meanwhile says what happens to objects while a policy is not ready.
func meanwhile(p *policyset.Policy) string {
	switch {
	case !p.Policy.Enforce:
		return ""
	case p.HostError:
		return "; meanwhile the objects that it governs are kept, since this is an error of Gleaner and not of the module"
	case p.Spec.OnFault == v1alpha1.OnFaultDefault && p.Loading.IsZero():
		return "; meanwhile objects are deleted as if it did not exist (onFault: Default)"
	case !p.Loading.IsZero():
		return "; meanwhile the objects that it governs are kept"
	default:
		return "; meanwhile the objects that it governs are kept (onFault: Hold)"
	}
}

// held counts the objects with a hold that the rules of a policy select.
func held(p *policyset.Policy, holds map[Place]int) int64 {
	n := 0
	if p.RequiresHold() {
		for place, count := range holds {
			if p.Policy.Selects(place.Resource) && (p.Key.Namespace == "" || p.Key.Namespace == place.Namespace) {
				n += count
			}
		}
	}
	return int64(n)
}

// governed returns the resources that a policy names, as kubectl writes them.
func governed(p *policyset.Policy) []string {
	var list []string
	for _, rule := range p.Policy.Rules {
		for _, group := range rule.Groups {
			for _, resource := range rule.Resources {
				name := resource
				if group != "" {
					name += "." + group
				}
				list = append(list, name)
			}
		}
	}
	slices.Sort(list)
	list = slices.Compact(list)
	return list[:min(len(list), v1alpha1.MaxStatusResources)]
}

// describeOverlapping sets whether other policies take precedence over one where they
// govern the same objects.
func describeOverlapping(s *policyset.Snapshot, p *policyset.Policy, to setter) {
	var texts []string
	for _, o := range s.Set.Overlaps(p.Policy) {
		var names []string
		for _, first := range o.Preceding {
			if !first.InEffect() || !first.MayOverlap(p.Policy) {
				continue
			}
			if first.Loading && meta.FindStatusCondition(*to.conditions, v1alpha1.ConditionOverlapping) != nil {
				return // its hooks are not known yet: they may be what they were before
			}
			names = append(names, first.String())
		}
		if len(names) == 0 {
			continue
		}
		resource := o.Resource
		if resource == "*" {
			resource = "all others"
		}
		texts = append(texts, fmt.Sprintf("%s of %s: %s", o.Hook, resource, strings.Join(names, ", ")))
	}
	if len(texts) == 0 {
		to.set(v1alpha1.ConditionOverlapping, false, "First", "no other policy takes precedence over it")
		return
	}
	slices.Sort(texts)
	to.set(v1alpha1.ConditionOverlapping, true, "OthersFirst", "others take precedence over it, unless they abstain: "+strings.Join(texts, "; "))
}
