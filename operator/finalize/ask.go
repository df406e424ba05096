package finalize

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/policies"
)

// mostRounds bounds how often a module may ask for more within one attempt.
const mostRounds = 16

// shortestWait is how soon a module is asked again whose resource was changed while it
// was asked.
const shortestWait = 20 * time.Millisecond

// ask has the module say what is to be done, and does it, until there is another
// answer than that.
func (v *visitor) ask(ctx context.Context) time.Duration {
	began := v.Now()
	v.track.attempt = max(v.track.attempt, v.memory.Attempt) + 1
	request, err := v.request(ctx)
	if err != nil {
		return v.failed(ctx, Note{}, err)
	}
	n := Note{Asked: true}
	for n.Rounds < mostRounds {
		n.Rounds++
		request.Round = n.Rounds
		answer, err := v.f.Asker.Ask(ctx, request)
		if v.over(ctx) {
			return lookAgain // whoever serves it next asks again
		}
		n.Exchanges = append(n.Exchanges, policies.ExchangeOf(request, answer, err))
		n.Fuel += answer.Fuel
		n.Verdict, n.Fault, n.Took = answer.Verdict, err, v.Now().Sub(began)
		if v.moot() {
			return v.anew(ctx, n)
		}
		if err != nil || answer.Verdict.Decision != hostabi.DecisionAct {
			return v.answered(ctx, n)
		}
		if would := v.withheld(answer.Verdict.Intents); would != "" {
			n.Reason, n.Message = Watched, "the module asks for "+would+", and nothing is done about it (mode: Monitor)"
			return v.conclude(ctx, n, v.afterwards(n))
		}
		if wait := v.limit(answer.Verdict); wait > 0 {
			return v.limited(ctx, n, wait)
		}
		if err := v.remember(ctx, answer.Verdict.State); err != nil {
			return v.failed(ctx, n, err)
		}
		request.State = v.memory.State
		request.Results = v.act(ctx, &n, request.Results)
		switch {
		case v.over(ctx):
			return lookAgain
		case v.moot():
			return v.anew(ctx, n)
		}
	}
	n.Verdict = hostabi.Verdict{}
	n.Fault = fmt.Errorf("after %d rounds it still asks for more: remember what is done in state, and Wait for a second in between", mostRounds)
	return v.answered(ctx, n)
}

// moot reports whether what the module says is not to be done any more: somebody has
// changed the resource since it was asked, or the object is gone. Rounds can take minutes.
func (v *visitor) moot() bool {
	now := v.finalizer()
	return !now.Same(v.f.Finalizer) || now.shared != v.f.shared || !v.waits(v.key.uid)
}

// anew tells what was done until then, and has the object looked at again at once.
func (v *visitor) anew(ctx context.Context, n Note) time.Duration {
	v.track.asked = nil
	n.Reason, n.Message, n.Fault = Waits, "while the module was asked its resource was changed, or the object was gone: it is looked at again", nil
	return v.conclude(ctx, n, shortestWait)
}

// withheld names what is not done in Monitor of what the module asks for: the first
// thing that might change something.
func (v *visitor) withheld(asked []hostabi.Intent) string {
	if v.f.Enforce {
		return ""
	}
	for _, intent := range asked {
		if !intents.OnlyReads(intent) {
			return intents.Describe(intent)
		}
	}
	return ""
}

// act carries out what the module asks for, and adds what came of it to the results
// of earlier rounds.
func (v *visitor) act(ctx context.Context, n *Note, earlier map[string]hostabi.Result) map[string]hostabi.Result {
	results := maps.Clone(earlier)
	if results == nil {
		results = map[string]hostabi.Result{}
	}
	apiVersion, kind := v.track.object.Kind.ToAPIVersionAndKind()
	on := intents.Behalf{
		Namespace: v.f.Namespace, Name: v.f.String(), Account: v.f.Account, Grants: v.f.Grants, ReadOnly: !v.f.Enforce,
		About: &corev1.ObjectReference{APIVersion: apiVersion, Kind: kind, Namespace: v.key.namespace, Name: v.key.name, UID: v.key.uid},
	}
	for _, intent := range n.Verdict.Intents {
		if v.over(ctx) || v.moot() {
			break
		}
		r := v.do(ctx, on, intent)
		results[intent.ID] = r
		v.track.wrote = v.track.wrote || writes(intent) && r.Error == nil
		n.Intents = append(n.Intents, Carried{intent, r})
	}
	return results
}

// writes reports whether an intent writes objects, of which one may be that which the
// module is asked about.
func writes(intent hostabi.Intent) bool {
	switch intent.Type() {
	case hostabi.IntentCreate, hostabi.IntentDelete, hostabi.IntentPatch:
		return true
	default:
		return false
	}
}

// answered does as the module said at last.
func (v *visitor) answered(ctx context.Context, n Note) time.Duration {
	verdict := n.Verdict
	n.Message = verdict.Reason
	if n.Fault != nil {
		n.Reason, n.Message = AtFault, n.Fault.Error()
		return v.conclude(ctx, n, v.afterwards(n))
	}
	if !v.f.Enforce && verdict.Decision != hostabi.DecisionWait {
		n.Reason, n.Message = Watched, fmt.Sprintf("the module says %s, and nothing is done about it (mode: Monitor)", verdict.Decision)
		return v.conclude(ctx, n, v.afterwards(n))
	}
	switch verdict.Decision {
	case hostabi.DecisionDone:
		n.Reason = Done
		return v.letGo(ctx, n)
	case hostabi.DecisionFail:
		if err := v.fail(ctx, verdict.Reason); err != nil {
			return v.failed(ctx, n, err)
		}
		n.Reason, n.Message = Failed, v.untilChanged(v.memory.Failed)
		return v.conclude(ctx, n, v.afterwards(n))
	case hostabi.DecisionWait:
		if wait := v.limit(verdict); wait > 0 {
			return v.limited(ctx, n, wait)
		}
		if err := v.remember(ctx, verdict.State); err != nil {
			return v.failed(ctx, n, err)
		}
		n.Reason, n.Message = n.waited()
		v.track.failures, v.track.limited = 0, 0
		return v.conclude(ctx, n, verdict.WaitFor())
	default: // the parser lets no other pass
		n.Fault = fmt.Errorf("it says %q", verdict.Decision)
		n.Reason, n.Message = AtFault, n.Fault.Error()
		return v.conclude(ctx, n, v.afterwards(n))
	}
}

// request puts the question.
func (v *visitor) request(ctx context.Context) (r hostabi.Request, err error) {
	o := v.track.object
	r = hostabi.Request{
		APIVersion: hostabi.Version, Hook: hostabi.HookFinalize, Requested: requested(v),
		Policy: hostabi.Policy{Name: v.f.Name, Namespace: v.f.Namespace, Settings: v.f.Settings},
		Time:   v.Now().UTC().Truncate(time.Second), Attempt: v.track.attempt, State: v.memory.State,
		NamespaceTerminating: v.namespace.Terminating,
		IdempotencyKey:       fmt.Sprintf("%s/%s/%s", o.UID, hostabi.HookFinalize, v.entry),
	}
	for _, ref := range o.Owners {
		r.Owners = append(r.Owners, hostabi.Owner{Standing: hostabi.StandingUnknown, Reference: hostabi.Reference{
			APIVersion: ref.APIVersion, Kind: ref.Kind, Name: ref.Name, UID: string(ref.UID),
			Controller: ref.Controller, BlockOwnerDeletion: ref.BlockOwnerDeletion,
		}})
	}
	if d := v.track.deadline; !d.IsZero() {
		d = d.UTC()
		r.Deadline = &d
	}
	r.ServiceAccountMissing = v.accountMissing(ctx)
	seen := bare(v.object)
	if v.f.Needs == policies.NeedsReference {
		r.Withheld = append(r.Withheld, "metadata.labels", "metadata.annotations", "object")
	} else if seen, err = v.seenBy(ctx); err != nil {
		return r, err
	}
	if v.f.Needs == policies.NeedsMetadata {
		r.Withheld = append(r.Withheld, "object")
		seen = consult.MetadataOf(seen)
	}
	r.Object, err = consult.Document(strip(seen))
	return r, err
}

func requested(v *visitor) hostabi.Requested {
	switch {
	case v.track.object.Orphan: // the API server has it go first, too
		return hostabi.RequestedOrphan
	case v.track.object.Foreground:
		return hostabi.RequestedForeground
	default:
		return hostabi.RequestedUnspecified
	}
}

// bare is what everybody may know of an object: its name, and that it is being
// deleted.
func bare(o *unstructured.Unstructured) *unstructured.Unstructured {
	b := &unstructured.Unstructured{Object: map[string]any{}}
	b.SetGroupVersionKind(o.GroupVersionKind())
	b.SetNamespace(o.GetNamespace())
	b.SetName(o.GetName())
	b.SetUID(o.GetUID())
	b.SetResourceVersion(o.GetResourceVersion())
	b.SetFinalizers(o.GetFinalizers())
	b.SetDeletionTimestamp(o.GetDeletionTimestamp())
	return b
}

// strip takes off what is ours: the module gets its own part of it as its state.
func strip(o *unstructured.Unstructured) *unstructured.Unstructured {
	annotations := o.GetAnnotations() // a copy
	if _, ours := annotations[Annotation]; !ours {
		return o
	}
	o = o.DeepCopy()
	delete(annotations, Annotation)
	if len(annotations) == 0 {
		annotations = nil
	}
	o.SetAnnotations(annotations)
	return o
}

// seenBy returns the object as the finalizer's module may see it: one of a namespace sees
// what its service account may read. The error is a *consult.WithheldError if that is not
// the object.
func (v *visitor) seenBy(ctx context.Context) (*unstructured.Unstructured, error) {
	if why := v.f.NoReader(); why != "" {
		return nil, &consult.WithheldError{Policy: v.f.String(), Why: why}
	}
	if v.f.Namespace == "" {
		return v.object, nil
	}
	o, err := v.Reader.Get(ctx, v.f.Account, v.resource.Version, v.key.namespace, v.key.name)
	switch {
	case apierrors.IsForbidden(err):
		return nil, &consult.WithheldError{Policy: v.f.String(), Why: err.Error()}
	case err != nil:
		return nil, err
	case o.GetUID() != v.key.uid:
		return nil, fmt.Errorf("read it as %s/%s: it is another object by now", v.f.Account.Namespace, v.f.Account.Name)
	}
	return o, nil
}

var serviceAccounts = schema.GroupVersionResource{Version: "v1", Resource: "serviceaccounts"}

// accountSeen is when the service account was looked for, and whether it was there.
type accountSeen struct {
	of      policies.Account
	at      time.Time
	missing bool
}

// accountLife is for how long that is believed.
const accountLife = 5 * time.Second

// accountMissing reports whether the finalizer's service account is known not to
// exist. That it could not be read proves nothing.
func (v *visitor) accountMissing(ctx context.Context) bool {
	a, now := v.f.Account, v.Now()
	if a == (policies.Account{}) {
		return false
	}
	v.mu.Lock()
	seen := v.account
	v.mu.Unlock()
	if seen.of == a && now.Sub(seen.at) < accountLife {
		return seen.missing
	}
	_, err := v.Reader.Get(ctx, policies.Account{}, serviceAccounts, a.Namespace, a.Name)
	seen = accountSeen{of: a, at: now, missing: err != nil && catalog.Denies(err, serviceAccounts.GroupResource(), a.Name)}
	v.mu.Lock()
	v.account = seen
	v.mu.Unlock()
	return seen.missing
}
