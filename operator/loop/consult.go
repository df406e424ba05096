package loop

import (
	"context"
	"errors"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/memo"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/policies"
)

// consult asks for a judgement where one is needed.
func (l *Loop) consult(ctx context.Context, id graph.ID, s decide.Situation, given *unstructured.Unstructured) (consult.Opinion, decide.Judgement, error) {
	q := consult.Question{Facts: s.Facts, Requested: hostabi.RequestedUnspecified, Attempt: l.waits.attempt(id, l.now()), Given: given}
	switch s.Kind {
	case decide.Ownerless:
		q.Hook = hostabi.HookCollect
	case decide.Held:
		q.Hook, q.Requested = hostabi.HookPropagate, requested(s.Facts.Object)
	default:
		return consult.Opinion{}, decide.Judgement{Attempt: q.Attempt}, nil
	}
	opinion, err := l.consultant.Ask(ctx, q)
	if err != nil {
		return opinion, decide.Judgement{}, err
	}
	for _, asked := range opinion.Asked {
		l.withheld(asked.Fault)
	}
	judgement := judge(q, opinion, l.now())
	judgement.Kept = l.kept.has(id)
	judgement.Refusable = l.options.Beside && s.Kind == decide.Ownerless && l.refusable(s.Facts.Object)
	return opinion, judgement, nil
}

// withheld reports whether an error is that a policy or finalizer may not read an object,
// and has its status say so.
func (l *Loop) withheld(err error) bool {
	found := (*consult.WithheldError)(nil)
	if !errors.As(err, &found) {
		return false
	}
	if l.keeper != nil {
		l.keeper.Withheld(found.Policy, found.Why)
	}
	return true
}

// requested is what a client asked to become of an object's dependents, as far as
// its finalizers tell.
func requested(o graph.Object) hostabi.Requested {
	switch {
	case o.Orphan:
		return hostabi.RequestedOrphan
	case o.Foreground:
		return hostabi.RequestedForeground
	default:
		return hostabi.RequestedUnspecified
	}
}

// judge makes a judgement of what the policies had to say.
func judge(q consult.Question, o consult.Opinion, now time.Time) decide.Judgement {
	j := decide.Judgement{
		Verdict: o.Verdict, Fault: o.Fault != nil, Memo: o.Memo, Now: now,
		Decided: o.By != nil || o.Decided != "", Usual: o.Usual, Attempt: q.Attempt,
	}
	for _, a := range o.Asked {
		j.Contested, j.Watched = j.Contested || a.Policy.Enforce, j.Watched || !a.Policy.Enforce
	}
	if o.Remembered {
		j.Remembered = o.Memo
	}
	if o.By == nil {
		return j
	}
	if len(o.Verdict.State) != 0 {
		j.Memo.State, j.Memo.Policy = o.Verdict.State, o.By.String()
	}
	if q.Hook == hostabi.HookPropagate && o.Verdict.Decision != hostabi.DecisionWait {
		j.Memo.Propagation = &memo.Propagation{
			Policy: o.By.String(), Decision: string(o.Verdict.Decision), Requested: string(q.Requested),
			Reason: o.Verdict.Reason, Dependents: o.Verdict.Dependents,
		}
	}
	return j
}

// waits are the objects whose policy has said when to ask again.
type waits struct {
	mu sync.Mutex // covers of
	of map[graph.ID]waiting
}

type waiting struct {
	attempt int // that ended in waiting
	after   time.Duration
	due     time.Time
}

// attempt returns which attempt at an answer is made now. Asking again before the
// time, since something has changed, is the same attempt.
func (w *waits) attempt(id graph.ID, now time.Time) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	earlier, waits := w.of[id]
	switch {
	case !waits:
		return 1
	case now.Before(earlier.due):
		return earlier.attempt
	default:
		return earlier.attempt + 1
	}
}

// schedule notes what a plan says of the time, and returns how long it is from
// now. To be told the same wait again before its time doesn't prolong it.
func (w *waits) schedule(id graph.ID, plan decide.Plan, attempt int, now time.Time) time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if plan.After <= 0 {
		delete(w.of, id)
		return 0
	}
	earlier, waits := w.of[id]
	if waits && earlier.after == plan.After && now.Before(earlier.due) {
		return earlier.due.Sub(now)
	}
	if w.of == nil {
		w.of = map[graph.ID]waiting{}
	}
	w.of[id] = waiting{attempt: attempt, after: plan.After, due: now.Add(plan.After)}
	return plan.After
}

// forget forgets an object that is gone.
func (w *waits) forget(id graph.ID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.of, id)
}

// askedOf puts what the policies said into the words of records.
func askedOf(o consult.Opinion) []record.Asked {
	var list []record.Asked
	for _, a := range o.Asked {
		entry := record.Asked{
			Policy: a.Policy.String(), Generation: a.Policy.Generation, Mode: "Enforce", Hook: string(a.Hook),
			Module: a.Policy.Module, Digest: a.Policy.Digest,
			Decision: string(a.Verdict.Decision), Reason: a.Verdict.Reason,
			Fuel: a.Fuel, Rounds: a.Rounds, Duration: int64(a.Took),
		}
		if !a.Policy.Enforce {
			entry.Mode = "Monitor"
		}
		if a.Fault != nil {
			entry.Decision, entry.Fault = "", a.Fault.Error()
		}
		entry.Transcribe(a.Exchanges, false) // no policy may have secrets recorded
		list = append(list, entry)
	}
	return list
}

// by names the policy whose word a decision goes by.
func (l *Loop) by(o consult.Opinion) string {
	switch {
	case o.By != nil:
		return o.By.String()
	case o.Decided != "":
		return o.Decided
	case o.Verdict.Decision != "":
		return l.options.Evaluator.Name()
	default:
		return ""
	}
}

// noPolicies is the set where none can be.
var noPolicies = policies.NewSet(nil)

// policiesInForce returns the policies in force now; nil until they are known.
func (l *Loop) policiesInForce() *policies.Set {
	switch {
	case l.keeper != nil:
		return l.keeper.Policies()
	case l.rehearsed != nil:
		return l.rehearsed()
	default:
		return noPolicies
	}
}
