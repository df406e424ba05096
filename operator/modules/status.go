package modules

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
)

// Decided counts what a policy answered, for its status. The policy is named as
// policies.Policy.String does.
func (k *Keeper) Decided(policy, decision string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	of := k.counts[policy]
	if of == nil {
		of = map[string]int64{}
		k.counts[policy] = of
	}
	of[decision]++
}

func (k *Keeper) decisions(policy string) map[string]int64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return maps.Clone(k.counts[policy])
}

// forgetCounts forgets what is noted of policies and finalizers that are gone.
func (k *Keeper) forgetCounts(b *build) {
	there := map[string]bool{}
	for _, p := range b.policies {
		there[p.policy.String()] = true
	}
	for _, f := range b.finalizers {
		there[f.policy.String()] = true
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.counts, func(policy string, _ map[string]int64) bool { return !there[policy] })
	maps.DeleteFunc(k.unseen, func(policy string, _ unseen) bool { return !there[policy] })
	maps.DeleteFunc(k.limited, func(policy string, _ time.Time) bool { return !there[policy] })
}

// report writes the status of every resource that says something else by now.
func (k *Keeper) report(ctx context.Context, b *build) {
	if !k.options.Leads() {
		return
	}
	k.place(ctx, b)
	k.forgetCounts(b)
	if b.holds() {
		b.held = k.options.Held()
	}
	for _, m := range b.modules {
		if !brief(m.loading) {
			k.write(ctx, m.object, m.kind, &m.status.Conditions, func() {
				m.describe()
				m.status.Reason = summary(m.status.Conditions)
			})
		}
	}
	for _, p := range b.policies {
		if brief(p.loading) {
			continue
		}
		k.write(ctx, p.object, p.kind, &p.status.Conditions, func() {
			k.describe(b, p)
			p.status.Reason = summary(p.status.Conditions)
		})
	}
	k.reportFinalizers(ctx, b)
}

// place has the API server do what the resources in force need it to. What could not be
// done is tried again.
func (k *Keeper) place(ctx context.Context, b *build) {
	if k.placed != b || len(k.late) != 0 {
		before := fmt.Sprint(k.late)
		k.placed, k.late = b, k.placeHolds(ctx, b)
		if now := fmt.Sprint(k.late); len(k.late) != 0 && now != before && ctx.Err() == nil {
			k.options.Log.Info("Some holds and finalizers are placed after creation only", "why", now)
		}
	}
	if k.options.Veto == nil {
		k.clear(ctx)
		return
	}
	if k.vetoed == b && k.unvetoed == nil && len(k.unrefused) == 0 {
		return
	}
	before := fmt.Sprint(k.unrefused)
	k.vetoed, k.unvetoed = b, k.placeVetoes(ctx, b)
	if k.unvetoed != nil && ctx.Err() == nil {
		k.options.Log.Error(k.unvetoed, "The other collector is not kept from anything")
	}
	k.unrefused = k.placeRefusals(ctx, b) // after that is known who the other collector is
	if now := fmt.Sprint(k.unrefused); len(k.unrefused) != 0 && now != before && ctx.Err() == nil {
		k.options.Log.Info("Some deletes that ask for Orphan are not refused", "why", now)
	}
}

// write writes an object's status, if describing changes it, and tells of conditions
// that have changed. The object stays what was read and is in force: what the API server
// answers may be of a later generation, of which nothing is known yet.
func (k *Keeper) write(ctx context.Context, o client.Object, kind string, conditions *[]metav1.Condition, describe func()) {
	before, former := o.DeepCopyObject().(client.Object), slices.Clone(*conditions)
	describe()
	if equality.Semantic.DeepEqual(before, o) {
		return
	}
	err := k.client.Status().Patch(ctx, o.DeepCopyObject().(client.Object), client.MergeFrom(before))
	switch {
	case err == nil:
		k.tell(o, kind, former, *conditions)
	case !apierrors.IsNotFound(err) && ctx.Err() == nil:
		k.options.Log.Error(err, "Could not write the status", "kind", kind, "namespace", o.GetNamespace(), "name", o.GetName())
	}
}

// told are the conditions of which a change is told as an event.
var told = []string{v1alpha1.ConditionAccepted, v1alpha1.ConditionModuleReady, v1alpha1.ConditionFetched, v1alpha1.ConditionCompiled}

// toldOfEnforcing are the reasons of ConditionEnforcing that are told as well: no author
// knows those by themselves.
var toldOfEnforcing = []string{reasonAlone, reasonWithheld, reasonNotServed, reasonNotNamespaced, reasonNotVerified}

// tell tells what has come to be wrong, or right again.
func (k *Keeper) tell(o client.Object, kind string, former, now []metav1.Condition) {
	for _, c := range now {
		was := meta.FindStatusCondition(former, c.Type)
		level, news := tidings(was, c)
		if !news {
			continue
		}
		k.options.Tell(&corev1.ObjectReference{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
		}, level, c.Reason, c.Message)
	}
}

// tidings reports whether a change of a condition is told, and how bad that is.
func tidings(was *metav1.Condition, c metav1.Condition) (level string, news bool) {
	bad := c.Status != metav1.ConditionTrue
	if c.Reason == reasonLoading {
		return "", false
	}
	if was != nil && was.Reason == reasonLoading {
		was = nil // how it ends is news if it ends badly
	}
	if c.Type == v1alpha1.ConditionEnforcing {
		bad = slices.Contains(toldOfEnforcing, c.Reason)
		news = bad && (was == nil || was.Reason != c.Reason) || !bad && was != nil && slices.Contains(toldOfEnforcing, was.Reason)
	} else {
		news = slices.Contains(told, c.Type) && (was == nil && bad || was != nil && (was.Status != c.Status || was.Reason != c.Reason))
	}
	if bad {
		return corev1.EventTypeWarning, news
	}
	return corev1.EventTypeNormal, news
}

// describe says in the status what became of a module.
func (m *moduleState) describe() {
	s := m.status
	s.ObservedGeneration = m.object.GetGeneration()
	s.Digest, s.Engine, s.ABI, s.Hooks = "", "", "", nil
	if c := m.compiled; c != nil {
		s.Digest, s.Engine, s.ABI, s.Hooks = c.Digest, c.Engine, hostabi.Version, words(c.Hooks)
	}
	set := setter(&s.Conditions, m.object)
	fetched, compiled := !m.problem.is() || m.problem.condition == v1alpha1.ConditionCompiled, m.compiled != nil
	switch {
	case m.problem.condition == v1alpha1.ConditionFetched:
		set(v1alpha1.ConditionFetched, false, m.problem.reason, m.problem.message)
	case m.pinned:
		set(v1alpha1.ConditionFetched, fetched, "Fetched", "its content was fetched, and its source can't have other content later")
	default:
		set(v1alpha1.ConditionFetched, fetched, "FetchedUnpinned",
			"its content was fetched, and its source may have other content later, which policies that pin this digest do not evaluate: "+
				"write sha256, or name the image by digest, to reject other content here")
	}
	switch {
	case compiled:
		set(v1alpha1.ConditionCompiled, true, "Compiled", "it answers "+strings.Join(words(m.compiled.Hooks), ", "))
	case m.problem.condition == v1alpha1.ConditionCompiled:
		set(v1alpha1.ConditionCompiled, false, m.problem.reason, m.problem.message)
	case !m.loading.IsZero():
		set(v1alpha1.ConditionCompiled, false, "Loading", "it is compiled once it is fetched")
	default:
		set(v1alpha1.ConditionCompiled, false, "NotFetched", "its bytes are not there")
	}
}

func words(hooks []hostabi.Hook) []string {
	var list []string
	for _, h := range hooks {
		list = append(list, string(h))
	}
	return list
}

// mostMessage bounds the message of a condition: compilers can say a lot.
const mostMessage = 4096

// setter returns what sets a condition of an object.
func setter(conditions *[]metav1.Condition, o client.Object) func(kind string, is bool, reason, message string) {
	return func(kind string, is bool, reason, message string) {
		status := metav1.ConditionFalse
		if is {
			status = metav1.ConditionTrue
		}
		if len(message) > mostMessage {
			message = strings.ToValidUTF8(message[:mostMessage], "") + " …"
		}
		meta.SetStatusCondition(conditions, metav1.Condition{
			Type: kind, Status: status, ObservedGeneration: o.GetGeneration(), Reason: reason, Message: message,
		})
	}
}

// describe says in the status what became of a policy.
func (k *Keeper) describe(b *build, p *policyState) {
	s := p.status
	s.ObservedGeneration = p.object.GetGeneration()
	s.Digest, s.Engine, s.Hooks, s.ABI = p.policy.Digest, p.engine, nil, ""
	if p.policy.Asker != nil {
		s.Hooks, s.ABI = words(p.policy.Hooks), hostabi.Version
	}
	s.Held = p.held(b.held)
	s.Decisions = k.decisions(p.policy.String())
	s.Resources = p.governed()
	set, ready := setter(&s.Conditions, p.object), !p.problem.is()
	k.readiness(&p.asking, set, p.meanwhile())
	k.describeEnforcing(p, set, ready)
	overlapping(b, p, set)
}

// reasonAlone is why a policy is not enforced, or not all is well, where there should be
// another collector.
const reasonAlone = "NoOtherCollector"

const adviceAlone = "no other garbage collector is running: start kube-controller-manager with its garbage-collector-controller, or run Gleaner with --collector=primary"

// describeEnforcing says in the status whether it is done as the policy decides.
func (k *Keeper) describeEnforcing(p *policyState, set func(string, bool, string, string), ready bool) {
	alone, collects := k.options.Alone != nil && k.options.Alone(), p.policy.Answers(hostabi.HookCollect)
	notVetoed := k.unvetoed
	if notVetoed == nil {
		notVetoed = k.Mistaken()
	}
	absent := k.notGoverned(&p.asking)
	unseen, refuted := k.unverified()
	late, unrefused, withheld := k.late.of(holdPrefix+p.key.Name), k.unrefused.of(p.refusalName()), k.withheld(&p.asking, withheldLife)
	switch {
	case !p.policy.Enforce:
		set(v1alpha1.ConditionEnforcing, false, "Monitor", "it decides and records, and changes nothing: write mode: Enforce for that")
	case !ready:
		set(v1alpha1.ConditionEnforcing, false, "NotReady", "it can't be asked"+p.meanwhile())
	case absent.is():
		set(v1alpha1.ConditionEnforcing, false, absent.reason, absent.message)
	case withheld != "":
		set(v1alpha1.ConditionEnforcing, false, reasonWithheld, keptUnseen+withheld)
	case alone && p.holds():
		set(v1alpha1.ConditionEnforcing, false, reasonAlone, "it decides what becomes of dependents, and nobody carries that out, since "+adviceAlone)
	case alone:
		set(v1alpha1.ConditionEnforcing, true, reasonAlone, "it is done as it decides, and nobody collects the rest, since "+adviceAlone)
	case notVetoed != nil && collects:
		set(v1alpha1.ConditionEnforcing, false, "NotVetoed", "the other collector deletes what it would keep: "+notVetoed.Error())
	case unseen != "" && collects && refuted:
		set(v1alpha1.ConditionEnforcing, false, reasonNotVerified, "the other collector may delete what it would keep: "+unseen)
	case unseen != "" && collects:
		set(v1alpha1.ConditionEnforcing, false, "Verifying", "it is being found out whether the API server asks Gleaner about what the other collector deletes")
	case late != nil && p.holds():
		set(v1alpha1.ConditionEnforcing, true, "HoldsComeLate", "it is done as it decides, but holds are placed only after an object was created: "+late.Error())
	case unrefused != nil && p.refuses():
		set(v1alpha1.ConditionEnforcing, true, "OrphanNotRefused",
			"it is done as it decides, but a client that asks for Orphan may get it: "+unrefused.Error())
	case k.isLimited(p.policy.String()):
		set(v1alpha1.ConditionEnforcing, true, "RateLimited", "it is done as it decides, but later: the policy, or all of them about objects of one namespace, "+
			"have more states written than there may be in a time: have the module wait for longer, and change its state less often")
	default:
		set(v1alpha1.ConditionEnforcing, true, "Enforcing", "it is done as it decides")
	}
}

// readiness says whether a resource makes sense, and whether what it has asked can
// be; meanwhile is what becomes of objects if not.
func (k *Keeper) readiness(p *asking, set func(string, bool, string, string), meanwhile string) {
	accepted := p.problem.condition != v1alpha1.ConditionAccepted
	absent := k.notGoverned(p)
	switch {
	case !accepted:
		set(v1alpha1.ConditionAccepted, false, p.problem.reason, p.problem.message)
	case absent.reason == reasonNotServed:
		set(v1alpha1.ConditionAccepted, true, reasonNotServed, "the spec is valid, but "+absent.message)
	case absent.reason == reasonNotNamespaced:
		set(v1alpha1.ConditionAccepted, true, reasonNotNamespaced, "the spec is valid, but "+absent.message)
	default:
		set(v1alpha1.ConditionAccepted, true, "Accepted", "it makes sense")
	}
	quarantined := k.quarantined(p.policy.String())
	switch {
	case !p.problem.is() && quarantined != "":
		set(v1alpha1.ConditionModuleReady, false, reasonQuarantined, quarantined+meanwhile)
	case !p.problem.is():
		set(v1alpha1.ConditionModuleReady, true, "Ready", "it answers "+strings.Join(words(p.policy.Hooks), ", "))
	case accepted:
		set(v1alpha1.ConditionModuleReady, false, p.problem.reason, p.problem.message+meanwhile)
	default:
		set(v1alpha1.ConditionModuleReady, false, "NotAccepted", "it is not asked"+meanwhile)
	}
}

// meanwhile says what becomes of the objects while the policy is not ready.
func (p *policyState) meanwhile() string {
	switch {
	case !p.policy.Enforce:
		return ""
	case p.hostError:
		return "; meanwhile the objects that it governs are kept, since this is an error of Gleaner and not of the module"
	case p.spec.OnFault == v1alpha1.OnFaultDefault && p.loading.IsZero():
		return "; meanwhile objects go as if it were not there (onFault: Default)"
	case !p.loading.IsZero():
		return "; meanwhile the objects that it governs are kept"
	default:
		return "; meanwhile the objects that it governs are kept (onFault: Hold)"
	}
}

// holds reports whether objects get a hold for the policy.
func (p *policyState) holds() bool {
	return p.policy.Enforce && !p.policy.Unsure && p.policy.Answers(hostabi.HookPropagate)
}

// holds reports whether objects get a hold for any policy.
func (b *build) holds() bool {
	return slices.ContainsFunc(b.policies, (*policyState).holds)
}

// held counts the objects with a hold that the policy's rules select.
func (p *policyState) held(holds map[Place]int) int64 {
	n := 0
	if p.holds() {
		for place, count := range holds {
			if p.policy.Selects(place.Resource) && (p.key.Namespace == "" || p.key.Namespace == place.Namespace) {
				n += count
			}
		}
	}
	return int64(n)
}

func (p *policyState) governed() []string {
	var list []string
	for _, rule := range p.policy.Rules {
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
