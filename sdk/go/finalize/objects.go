package finalize

import (
	"encoding/json"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// TargetOf returns the target for an object.
func TargetOf(o hostabi.Object) hostabi.Target {
	return hostabi.Target{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}
}

// Get gets an object, and reports whether it exists.
func (s *Steps) Get(id string, target hostabi.Target) (hostabi.Object, bool) {
	return s.object(id, hostabi.Intent{Get: &hostabi.GetIntent{Target: target}})
}

// Patch patches an object, and reports whether it exists.
func (s *Steps) Patch(id string, patch hostabi.PatchIntent) (hostabi.Object, bool) {
	return s.object(id, hostabi.Intent{Patch: &patch})
}

// object is a step that returns an object which may not exist.
func (s *Steps) object(id string, intent hostabi.Intent) (hostabi.Object, bool) {
	result, ok := s.request(id, intent)
	switch {
	case !ok:
		return hostabi.Object{}, false
	case result.Error != nil && result.Error.Reason == hostabi.ErrorNotFound:
		return hostabi.Object{}, false
	case result.Error != nil:
		s.handleError(intent, *result.Error)
		return hostabi.Object{}, false
	case result.Object == nil:
		s.Wait(0, describe(intent)+": the result has no object")
		return hostabi.Object{}, false
	}
	return *result.Object, true
}

// Create creates an object of any type that encodes to JSON, and reports whether it
// was created. It returns false if an object with the name exists: steps can be
// repeated. The name must be the same each time.
func (s *Steps) Create(id string, object any) bool {
	if s.stopped() {
		return false
	}
	data, err := json.Marshal(object)
	if err != nil {
		s.fail("encode the object of step " + id + ": " + err.Error())
		return false
	}
	intent := hostabi.Intent{Create: &hostabi.CreateIntent{Object: data}}
	result, ok := s.request(id, intent)
	switch {
	case !ok:
		return false
	case result.Error != nil && result.Error.Reason == hostabi.ErrorAlreadyExists:
		return false
	case result.Error != nil:
		s.handleError(intent, *result.Error)
		return false
	}
	return true
}

// Delete deletes an object that an earlier step has read, and no other object with
// its name. It is finished when the API server has accepted the delete, or when the
// object does not exist; see [Steps.Gone].
func (s *Steps) Delete(id string, object hostabi.Object) {
	s.DeleteWith(id, hostabi.DeleteIntent{Target: TargetOf(object), UID: object.Metadata.UID})
}

// DeleteWith is Delete with all fields of a DeleteIntent.
func (s *Steps) DeleteWith(id string, in hostabi.DeleteIntent) {
	if s.stopped() {
		return
	}
	intent := hostabi.Intent{Delete: &in}
	if in.UID == "" {
		s.fail(describe(intent) + ": it has no UID: get or list the object first, and pass the result")
		return
	}
	result, ok := s.request(id, intent)
	switch {
	case !ok, result.Error == nil, result.Error.Reason == hostabi.ErrorNotFound:
	case result.Error.Reason == hostabi.ErrorConflict && s.isGone(id+".look", in.Target, in.UID):
	default:
		s.handleError(intent, *result.Error)
	}
}

// WaitGone waits until an object does not exist, or another has its name. It checks at
// the given interval.
func (s *Steps) WaitGone(id string, object hostabi.Object, every time.Duration) {
	if s.stopped() {
		return
	}
	target := TargetOf(object)
	if !s.isGone(id, target, object.Metadata.UID) {
		s.Wait(every, describeTarget(target)+" still exists")
	}
}

// isGone reports whether no object has this UID. Its result is meaningless if the
// run stops. A delete with a conflict does not prove it.
func (s *Steps) isGone(id string, target hostabi.Target, uid string) bool {
	o, found := s.Get(id, target)
	return !found || o.Metadata.UID != uid
}

// List lists one page of objects. See [Steps.Each] for all of them.
func (s *Steps) List(id string, in hostabi.ListIntent) hostabi.ListResult {
	intent := hostabi.Intent{List: &in}
	result, ok := s.request(id, intent)
	switch {
	case !ok:
		return hostabi.ListResult{}
	case result.Error != nil:
		s.handleError(intent, *result.Error)
		return hostabi.ListResult{}
	case result.List == nil:
		s.Wait(0, describe(intent)+": the result has no list")
		return hostabi.ListResult{}
	}
	return *result.List
}

// Event records a Kubernetes event about the object. It does not start a round
// while other steps have intents, and its result is ignored.
func (s *Steps) Event(id string, event hostabi.EventIntent) {
	if s.stopped() {
		return
	}
	event.Message = truncate(event.Message, hostabi.MaxReasonBytes)
	intent := hostabi.Intent{Event: &event}
	if _, there := s.result(id, &intent); !there && !s.Stopped() && len(s.intents) < hostabi.MaxIntents {
		s.intents = append(s.intents, intent)
	}
}

// Warn is Event with type Warning. The reason is in CamelCase, such as BucketLeft.
func (s *Steps) Warn(id, reason, message string) {
	s.Event(id, hostabi.EventIntent{Type: hostabi.EventWarning, Reason: reason, Message: message})
}
