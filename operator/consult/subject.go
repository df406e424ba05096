package consult

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/memo"
	"github.com/gleaner-dev/gleaner/policies"
)

// read returns the object as Gleaner itself may read it.
func (s *subject) read(ctx context.Context) (*unstructured.Unstructured, error) {
	if s.own != nil {
		return s.own, nil
	}
	if given, o := s.question.Given, s.question.Facts.Object; given != nil && given.GetUID() == o.UID && given.GetResourceVersion() == o.ResourceVersion {
		s.own = given
		return given, nil
	}
	object, err := s.readAs(ctx, policies.Account{})
	if err == nil {
		s.own = object
	}
	return object, err
}

// readAs reads the object as somebody. If it is other than it was judged, that is
// noted, and is an error.
func (s *subject) readAs(ctx context.Context, who policies.Account) (*unstructured.Unstructured, error) {
	o := s.question.Facts.Object
	resource, ok := s.Catalog().Preferred(o.Kind.GroupKind())
	if !ok {
		return nil, fmt.Errorf("read %s %s: its type is not served", o.Kind.Kind, o.Name)
	}
	object, err := s.Reader.Get(ctx, who, resource.Version, o.Namespace, o.Name)
	if err != nil {
		return nil, err
	}
	if object.GetUID() != o.UID || object.GetResourceVersion() != o.ResourceVersion {
		found := graph.ObjectOf(o.Kind, object)
		s.changed = &found
		return nil, fmt.Errorf("read %s %s: it has changed since it was judged", o.Kind.Kind, o.Name)
	}
	return object, nil
}

// seenBy returns the object as a policy may see it. Withheld says why it may not.
func (s *subject) seenBy(ctx context.Context, p *policies.Policy) (object *unstructured.Unstructured, withheld string, err error) {
	if why := p.NoReader(); why != "" {
		return nil, why, nil
	}
	if p.Namespace == "" {
		object, err = s.read(ctx)
		return object, "", err
	}
	if object, err = s.readAs(ctx, p.Account); apierrors.IsForbidden(err) {
		withheld, err = err.Error(), nil
	}
	return object, withheld, err
}

// WithheldError says that a policy or finalizer can't be evaluated about an object, since its
// service account may not read that. No module is asked without what it may need, so the
// object is kept, whatever onFault says.
type WithheldError struct {
	Policy string // as Policy.String names it
	Why    string
}

// Error implements error.
func (e *WithheldError) Error() string { return "it may not read the object: " + e.Why }

// remember finds what is remembered of the object.
func (s *subject) remember(ctx context.Context, opinion *Opinion) error {
	o, now := s.question.Facts.Object, s.Now()
	fresh := memo.New(o.UID, o.Owners, now)
	if s.question.Hook == hostabi.HookPropagate {
		fresh.OwnerlessSince = time.Time{} // it may well have owners
	}
	if !memo.Fits(o.Kind.Group) {
		opinion.Memo = s.unwritten.of(fresh)
		return nil
	}
	if !o.Memo {
		opinion.Memo = fresh
		return nil
	}
	object, err := s.read(ctx)
	if err != nil {
		opinion.Changed = s.changed
		return err
	}
	keys, missing := s.Keys()
	m, status := memo.Read(object, now, keys)
	switch {
	case status == memo.Valid:
		opinion.Memo, opinion.Remembered = m, true
	case status == memo.Unverified && missing != nil:
		opinion.Fault = fmt.Errorf("verify the state annotation: %w", missing)
		if s.Unverified != nil {
			s.Unverified(missing)
		}
	default:
		opinion.Memo, opinion.Stray = fresh, true
	}
	return nil
}

// put puts the question to a policy, in as many rounds as it takes.
func (s *subject) put(ctx context.Context, p *policies.Policy, m memo.Memo, asked *Asked) {
	request := s.request(s.question)
	request.Policy = hostabi.Policy{Name: p.Name, Namespace: p.Namespace, Settings: p.Settings}
	request.IdempotencyKey = fmt.Sprintf("%s/%s/%s", request.Object.Metadata.UID, request.Hook, p)
	if request.Dependents.Count != 0 {
		for _, k := range s.ByKind(graph.IDOf(s.question.Facts.Object.UID)) {
			request.Dependents.ByKind = append(request.Dependents.ByKind, hostabi.KindCount{Group: k.Kind.Group, Kind: k.Kind.Kind, Count: k.Count})
		}
	}
	if request.Hook == hostabi.HookCollect {
		request.OwnerlessSince = &m.OwnerlessSince
	}
	if m.Policy == p.String() {
		request.State, request.Attempt = m.State, max(request.Attempt, m.Attempt)
	}
	if asked.Fault = s.show(ctx, p, &request); asked.Fault != nil {
		return
	}
	for asked.Rounds < mostRounds {
		asked.Rounds++
		request.Round = asked.Rounds
		answer, err := p.Asker.Ask(ctx, request)
		asked.Fuel += answer.Fuel
		if p.Module != "" {
			asked.Exchanges = append(asked.Exchanges, policies.ExchangeOf(request, answer, err))
		}
		if isCutOff(err) {
			err = ours{err}
		}
		if err != nil || answer.Verdict.Decision != hostabi.DecisionAct {
			asked.Verdict, asked.Fault = answer.Verdict, err
			return
		}
		request.Results = s.results(ctx, p, answer.Verdict.Intents, request.Results)
		if len(answer.Verdict.State) != 0 {
			request.State = answer.Verdict.State
		}
	}
	asked.Fault = fmt.Errorf("after %d rounds it still asks for more to read: decide by what it has been shown", mostRounds)
}

// mostRounds bounds how often a policy may ask for more.
const mostRounds = 16

// show adds the object to what a policy is told.
func (s *subject) show(ctx context.Context, p *policies.Policy, request *hostabi.Request) error {
	request.NamespaceTerminating = s.namespace.Terminating
	if p.Needs == policies.NeedsReference {
		request.Withheld = append(request.Withheld, "metadata.labels", "metadata.annotations", "object")
		return nil
	}
	if err := s.locate(ctx); err != nil {
		return fmt.Errorf("whether its namespace is being deleted is not known: %w", ours{err})
	}
	request.NamespaceTerminating = s.namespace.Terminating
	object, withheld, err := s.seenBy(ctx, p)
	switch {
	case err != nil:
		return fmt.Errorf("it needs the object: %w", ours{err})
	case withheld != "":
		return ours{&WithheldError{Policy: p.String(), Why: withheld}}
	}
	if p.Needs == policies.NeedsMetadata {
		object = MetadataOf(object)
		request.Withheld = append(request.Withheld, "object")
	}
	shown, err := Document(object)
	if err != nil {
		return err
	}
	request.Object = shown
	return nil
}

// MetadataOf is an object without all but its kind and metadata, which it shares.
func MetadataOf(object *unstructured.Unstructured) *unstructured.Unstructured {
	m := &unstructured.Unstructured{Object: map[string]any{}}
	for _, key := range []string{"apiVersion", "kind", "metadata"} {
		if value, ok := object.Object[key]; ok {
			m.Object[key] = value
		}
	}
	return m
}

// unwritten are the memos of objects that can't have any. They are lost with the
// process, which makes a delay begin anew.
type unwritten struct {
	mu sync.Mutex // covers by
	by map[types.UID]memo.Memo
}

// unwrittenKept bounds them: roles and bindings without owners are few.
const unwrittenKept = 10_000

// of returns what is remembered of an object since it has had these references.
func (u *unwritten) of(fresh memo.Memo) memo.Memo {
	u.mu.Lock()
	defer u.mu.Unlock()
	if known, ok := u.by[fresh.UID]; ok && known.References == fresh.References && known.OwnerlessSince.IsZero() == fresh.OwnerlessSince.IsZero() {
		return known
	}
	if u.by == nil || len(u.by) >= unwrittenKept {
		u.by = map[types.UID]memo.Memo{}
	}
	u.by[fresh.UID] = fresh
	return fresh
}

// Document makes a document of an object.
func Document(object *unstructured.Unstructured) (o hostabi.Object, err error) {
	data, err := object.MarshalJSON()
	if err != nil {
		return o, fmt.Errorf("write %s %s: %w", object.GetKind(), object.GetName(), err)
	}
	return o, o.UnmarshalJSON(data)
}

func labelsOf(object *unstructured.Unstructured) labels.Labels { return labels.Set(object.GetLabels()) }

// results carries out what a policy asks to read, and adds what came of it to the
// results of earlier rounds. The parser lets nothing else pass.
func (s *subject) results(ctx context.Context, p *policies.Policy, asked []hostabi.Intent, earlier map[string]hostabi.Result) map[string]hostabi.Result {
	all := maps.Clone(earlier)
	if all == nil {
		all = map[string]hostabi.Result{}
	}
	on := intents.Behalf{Namespace: p.Namespace, Name: p.String(), Account: p.Account, Grants: policies.Grants{Read: p.Reads}, ReadOnly: true}
	for _, intent := range asked {
		all[intent.ID] = s.Intents.Do(ctx, on, intent)
	}
	return all
}
