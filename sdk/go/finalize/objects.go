package finalize

import (
	"encoding/json"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// TargetOf names an object.
func TargetOf(o hostabi.Object) hostabi.Target {
	return hostabi.Target{APIVersion: o.APIVersion, Kind: o.Kind, Namespace: o.Metadata.Namespace, Name: o.Metadata.Name}
}

// Get reads an object; false if there is none.
func (s *Steps) Get(id string, target hostabi.Target) (hostabi.Object, bool) {
	return s.object(id, hostabi.Intent{Get: &hostabi.GetIntent{Target: target}})
}

// Patch changes an object; false if there is none.
func (s *Steps) Patch(id string, patch hostabi.PatchIntent) (hostabi.Object, bool) {
	return s.object(id, hostabi.Intent{Patch: &patch})
}

// object is a step whose result is an object that may be missing.
func (s *Steps) object(id string, intent hostabi.Intent) (hostabi.Object, bool) {
	result, ok := s.ask(id, intent)
	switch {
	case !ok:
		return hostabi.Object{}, false
	case result.Error != nil && result.Error.Reason == hostabi.ErrorNotFound:
		return hostabi.Object{}, false
	case result.Error != nil:
		s.trouble(intent, *result.Error)
		return hostabi.Object{}, false
	case result.Object == nil:
		s.Wait(0, describe(intent)+": the result has no object")
		return hostabi.Object{}, false
	}
	return *result.Object, true
}

// Create creates an object of any type that is JSON, unless there is one of its
// name: steps may be taken twice. False if there was. Its name has to be the same
// each time.
func (s *Steps) Create(id string, object any) bool {
	if s.stopped() {
		return false
	}
	data, err := json.Marshal(object)
	if err != nil {
		s.mistake("write the object of step " + id + ": " + err.Error())
		return false
	}
	intent := hostabi.Intent{Create: &hostabi.CreateIntent{Object: data}}
	result, ok := s.ask(id, intent)
	switch {
	case !ok:
		return false
	case result.Error != nil && result.Error.Reason == hostabi.ErrorAlreadyExists:
		return false
	case result.Error != nil:
		s.trouble(intent, *result.Error)
		return false
	}
	return true
}

// Delete deletes an object that a step before has read, and no other of its name.
// It is through when the API server has taken the delete, or when the object is
// gone; see [Steps.Gone].
func (s *Steps) Delete(id string, object hostabi.Object) {
	s.DeleteWith(id, hostabi.DeleteIntent{Target: TargetOf(object), UID: object.Metadata.UID})
}

// DeleteWith is Delete with what else a delete may say.
func (s *Steps) DeleteWith(id string, in hostabi.DeleteIntent) {
	if s.stopped() {
		return
	}
	intent := hostabi.Intent{Delete: &in}
	if in.UID == "" {
		s.mistake(describe(intent) + ": it has no UID: get or list the object first, and hand over what comes of that")
		return
	}
	result, ok := s.ask(id, intent)
	switch {
	case !ok, result.Error == nil, result.Error.Reason == hostabi.ErrorNotFound:
	case result.Error.Reason == hostabi.ErrorConflict && s.isGone(id+".look", in.Target, in.UID):
	default:
		s.trouble(intent, *result.Error)
	}
}

// Gone waits until an object is gone, or another has its name, and looks so often.
func (s *Steps) Gone(id string, object hostabi.Object, every time.Duration) {
	if s.stopped() {
		return
	}
	target := TargetOf(object)
	if !s.isGone(id, target, object.Metadata.UID) {
		s.Wait(every, named(target)+" is still there")
	}
}

// isGone looks whether there is no object of this UID, which means nothing if that
// stops the run. A delete that met with a conflict has not shown it.
func (s *Steps) isGone(id string, target hostabi.Target, uid string) bool {
	o, found := s.Get(id, target)
	return !found || o.Metadata.UID != uid
}

// List reads one page of objects. See [Steps.Each] for all of them.
func (s *Steps) List(id string, in hostabi.ListIntent) hostabi.ListResult {
	intent := hostabi.Intent{List: &in}
	result, ok := s.ask(id, intent)
	switch {
	case !ok:
		return hostabi.ListResult{}
	case result.Error != nil:
		s.trouble(intent, *result.Error)
		return hostabi.ListResult{}
	case result.List == nil:
		s.Wait(0, describe(intent)+": the result has no list")
		return hostabi.ListResult{}
	}
	return *result.List
}

// Event tells of something, as a Kubernetes event about the object. It takes no
// round of its own as long as another step asks for something, and what comes of it does not matter.
func (s *Steps) Event(id string, event hostabi.EventIntent) {
	if s.stopped() {
		return
	}
	event.Message = shortened(event.Message, hostabi.MaxReasonBytes)
	intent := hostabi.Intent{Event: &event}
	if _, there := s.result(id, &intent); !there && !s.Stopped() && len(s.intents) < hostabi.MaxIntents {
		s.intents = append(s.intents, intent)
	}
}

// Warn is Event for what went wrong. The reason is one word, such as BucketLeft.
func (s *Steps) Warn(id, reason, message string) {
	s.Event(id, hostabi.EventIntent{Type: hostabi.EventWarning, Reason: reason, Message: message})
}
