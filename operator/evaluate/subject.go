package evaluate

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/operator/modulecall"
	"github.com/gleaner-dev/gleaner/operator/objectstate"
	"github.com/gleaner-dev/gleaner/policies"
)

// read returns the object, read with Gleaner's own permissions.
func (s *session) read(ctx context.Context) (*unstructured.Unstructured, error) {
	if s.object != nil {
		return s.object, nil
	}
	if known, o := s.input.Object, s.input.Facts.Object; known != nil && known.GetUID() == o.UID && known.GetResourceVersion() == o.ResourceVersion {
		s.object = known
		return known, nil
	}
	if listed, ok := s.listed(); ok {
		s.object = listed
		return listed, nil
	}
	object, err := s.readAs(ctx, policies.ServiceAccount{})
	if err == nil {
		s.object = object
	}
	return object, err
}

// listed returns the object from a list that had it in the state of the facts.
func (s *session) listed() (*unstructured.Unstructured, bool) {
	o := s.input.Facts.Object
	resource, served := s.Catalog().Preferred(o.Kind.GroupKind())
	if s.bulk == nil || !served {
		return nil, false
	}
	return s.bulk.Get(bulkread.Wanted{Resource: resource, Namespace: o.Namespace, Name: o.Name, UID: o.UID, ResourceVersion: o.ResourceVersion})
}

// readAs reads the object as a service account. If it differs from the facts, readAs sets
// changed and returns an error.
func (s *session) readAs(ctx context.Context, account policies.ServiceAccount) (*unstructured.Unstructured, error) {
	o := s.input.Facts.Object
	resource, ok := s.Catalog().Preferred(o.Kind.GroupKind())
	if !ok {
		return nil, fmt.Errorf("read %s %s: its type is not served", o.Kind.Kind, o.Name)
	}
	object, err := s.Reader.Get(ctx, account, resource.Version, o.Namespace, o.Name)
	if err != nil {
		return nil, err
	}
	if object.GetUID() != o.UID || object.GetResourceVersion() != o.ResourceVersion {
		found := graph.ObjectOf(o.Kind, object)
		s.changed = &found
		return nil, fmt.Errorf("read %s %s: it has changed since the facts were gathered", o.Kind.Kind, o.Name)
	}
	return object, nil
}

// readFor returns the object, read with the permissions of a policy. An error keeps the
// object regardless of onFault; it is a *modulecall.WithheldError if the policy may not read it.
func (s *session) readFor(ctx context.Context, p *policies.Policy, purpose string) (*unstructured.Unstructured, error) {
	object, err := modulecall.Visible(p, p.String(),
		func() (*unstructured.Unstructured, error) { return s.read(ctx) },
		func(account policies.ServiceAccount) (*unstructured.Unstructured, error) {
			return s.readAs(ctx, account)
		})
	switch {
	case errors.As(err, new(*modulecall.WithheldError)):
		return nil, hostError{err}
	case err != nil:
		return nil, fmt.Errorf("%s: %w", purpose, hostError{err})
	}
	return object, nil
}

// readState reads the state of the object.
func (s *session) readState(ctx context.Context, result *Result) error {
	o, now := s.input.Facts.Object, s.Now()
	fresh := objectstate.New(o.UID, o.Owners, now)
	if s.input.Hook == hostabi.HookPropagate {
		fresh.OwnersAbsentSince = time.Time{} // it may have owners
	}
	if !objectstate.Supported(o.Kind.Group) {
		result.State = s.memoryStates.get(fresh)
		return nil
	}
	if !o.HasState {
		result.State = fresh
		return nil
	}
	object, err := s.readAnnotations(ctx)
	if err != nil {
		result.Changed = s.changed
		return err
	}
	keys, missing := s.StateKeys()
	m, status := objectstate.Read(object, now, keys)
	switch {
	case status == objectstate.Valid:
		result.State, result.Stored = m, true
	case status == objectstate.Unverified && missing != nil:
		result.Fault = fmt.Errorf("verify the state annotation: %w", missing)
		if s.OnUnverified != nil {
			s.OnUnverified(missing)
		}
	default:
		result.State, result.Obsolete = fresh, true
	}
	return nil
}

// readAnnotations returns the object or, if it has a hold, what was seen of its metadata in the
// state of the facts: each step of carrying out a decision about its dependents needs the
// annotation in which the decision is stored, and nothing else of the object.
func (s *session) readAnnotations(ctx context.Context) (metav1.Object, error) {
	if s.Metadata != nil && s.input.Hook == hostabi.HookPropagate {
		if seen, ok := s.Metadata(s.input.Facts.Object); ok {
			return seen, nil
		}
	}
	return s.read(ctx)
}

// runRounds evaluates a policy, in as many rounds as needed.
func (s *session) runRounds(ctx context.Context, p *policies.Policy, m objectstate.State, evaluated *Evaluation) {
	request := s.request(s.input)
	request.Policy = hostabi.Policy{Name: p.Name, Namespace: p.Namespace, Settings: p.Settings}
	request.IdempotencyKey = fmt.Sprintf("%s/%s/%s", request.Object.Metadata.UID, request.Hook, p)
	if request.Dependents.Count != 0 {
		for _, k := range s.DependentsByKind(graph.IDOf(s.input.Facts.Object.UID)) {
			request.Dependents.ByKind = append(request.Dependents.ByKind, hostabi.KindCount{Group: k.Kind.Group, Kind: k.Kind.Kind, Count: k.Count})
		}
	}
	if request.Hook == hostabi.HookCollect {
		request.OwnersAbsentSince = &m.OwnersAbsentSince
	}
	if m.Policy == p.String() {
		request.State, request.Attempt = m.ModuleState, max(request.Attempt, m.Attempt)
	}
	if evaluated.Fault = s.addObject(ctx, p, &request); evaluated.Fault != nil {
		return
	}
	call := modulecall.Call{Evaluator: p.Evaluator, Request: request}
	for call.Next(ctx) {
		s.doIntents(ctx, p, &call)
	}
	evaluated.Verdict, evaluated.Fault, evaluated.Rounds, evaluated.Fuel = call.Verdict, call.Fault, call.Rounds, call.Fuel
	if p.Module != "" {
		evaluated.Exchanges = call.Exchanges
	}
	if isCanceled(call.Fault) {
		evaluated.Fault = hostError{call.Fault}
	}
}

// addObject adds the object to the request, as far as the policy needs it.
func (s *session) addObject(ctx context.Context, p *policies.Policy, request *hostabi.Request) error {
	request.NamespaceTerminating = s.namespace.Terminating
	return modulecall.AddObject(request, p.Needs, func() (*unstructured.Unstructured, error) {
		if err := s.readNamespace(ctx); err != nil {
			return nil, fmt.Errorf("read its namespace: %w", hostError{err})
		}
		request.NamespaceTerminating = s.namespace.Terminating
		return s.readFor(ctx, p, "read the object")
	})
}

// memoryStates stores the state of objects that cannot have a state annotation. It is lost on
// restart, after which delays start again.
type memoryStates struct {
	mu     sync.Mutex // covers by
	states map[types.UID]objectstate.State
}

// maxMemoryStates is the maximum number of stored states. Few roles and role bindings lose
// their owners.
const maxMemoryStates = 10_000

// get returns the stored state of an object with the same owner references, or stores fresh.
func (u *memoryStates) get(fresh objectstate.State) objectstate.State {
	u.mu.Lock()
	defer u.mu.Unlock()
	if known, ok := u.states[fresh.UID]; ok && known.ReferencesHash == fresh.ReferencesHash && known.OwnersAbsentSince.IsZero() == fresh.OwnersAbsentSince.IsZero() {
		return known
	}
	if u.states == nil || len(u.states) >= maxMemoryStates {
		u.states = map[types.UID]objectstate.State{}
	}
	u.states[fresh.UID] = fresh
	return fresh
}

func labelsOf(object *unstructured.Unstructured) labels.Labels { return labels.Set(object.GetLabels()) }

// doIntents carries out a policy's intents. The parser of verdicts accepts only reads.
func (s *session) doIntents(ctx context.Context, p *policies.Policy, call *modulecall.Call) {
	on := intents.Identity{Namespace: p.Namespace, Name: p.String(), Account: p.ServiceAccount, Grants: policies.Grants{Read: p.ReadRules}, ReadOnly: true}
	call.CarryOut(func(intent hostabi.Intent) (hostabi.Result, bool) { return s.Intents.Do(ctx, on, intent), false })
	if len(call.Verdict.State) != 0 {
		call.Request.State = call.Verdict.State
	}
}
