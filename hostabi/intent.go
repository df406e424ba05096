package hostabi

import "encoding/json"

// Intent is something that a module asks the host to do. Exactly one of its
// pointers is set: which, says what is to be done.
//
// The host carries an intent out only where a grant covers it, and as the
// service account that the policy names. Credentials are added by the host, and
// are not seen by the module.
type Intent struct {
	// ID names the intent's result: up to 63 letters, digits, '-', '_' and '.',
	// no two alike in a verdict.
	ID string `json:"id"`

	Get    *GetIntent    `json:"get,omitempty"`
	List   *ListIntent   `json:"list,omitempty"`
	Create *CreateIntent `json:"create,omitempty"`
	Delete *DeleteIntent `json:"delete,omitempty"`
	Patch  *PatchIntent  `json:"patch,omitempty"`
	HTTP   *HTTPIntent   `json:"http,omitempty"`
	Event  *EventIntent  `json:"event,omitempty"`
}

// IntentType is what an intent asks for.
type IntentType string

// The types of intents, each the name of its field.
const (
	IntentGet    IntentType = "get"
	IntentList   IntentType = "list"
	IntentCreate IntentType = "create"
	IntentDelete IntentType = "delete"
	IntentPatch  IntentType = "patch"
	IntentHTTP   IntentType = "http"
	IntentEvent  IntentType = "event"
)

// Reads tells that an intent of this type changes nothing in the cluster, and
// sends nothing out of it.
func (t IntentType) Reads() bool { return t == IntentGet || t == IntentList }

// Type is what the intent asks for; empty if none or several of its fields are
// set.
func (i Intent) Type() IntentType {
	var types []IntentType
	for _, field := range []struct {
		name IntentType
		set  bool
	}{
		{IntentGet, i.Get != nil}, {IntentList, i.List != nil}, {IntentCreate, i.Create != nil},
		{IntentDelete, i.Delete != nil}, {IntentPatch, i.Patch != nil},
		{IntentHTTP, i.HTTP != nil}, {IntentEvent, i.Event != nil},
	} {
		if field.set {
			types = append(types, field.name)
		}
	}
	if len(types) != 1 {
		return ""
	}
	return types[0]
}

// Target is the object that an intent is about.
type Target struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"` // none: a cluster-scoped object
	Name       string `json:"name"`
}

// GetIntent reads an object. Its result has the object.
type GetIntent struct{ Target }

// ListIntent reads objects of a kind. Its result has a list.
type ListIntent struct {
	APIVersion    string `json:"apiVersion"`
	Kind          string `json:"kind"`
	Namespace     string `json:"namespace,omitempty"` // none: in all namespaces
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
	Limit         int    `json:"limit,omitempty"`    // from 1 to MaxListLimit, which is also the default
	Continue      string `json:"continue,omitempty"` // of the result before, for the next page
}

// CreateIntent creates an object, by name: a question may be asked twice, and
// then the second create is told AlreadyExists. Its result has the object.
type CreateIntent struct {
	Object json.RawMessage `json:"object"` // the whole document
}

// DeleteIntent deletes an object, and no other that has come to bear its name.
type DeleteIntent struct {
	Target
	UID                string      `json:"uid"`                       // the object must have this
	ResourceVersion    string      `json:"resourceVersion,omitempty"` // and this, if given
	Propagation        Propagation `json:"propagation,omitempty"`
	GracePeriodSeconds *int64      `json:"gracePeriodSeconds,omitempty"`
}

// PatchType is how a patch is to be understood.
type PatchType string

// The types of patches. A merge patch and an apply patch are objects, a JSON
// patch is an array of operations.
const (
	PatchMerge PatchType = "merge"
	PatchJSON  PatchType = "json"
	PatchApply PatchType = "apply" // server-side, as a field manager of the policy's own
)

// PatchIntent changes an object. Its result has the object. A patch that is to
// change this object and no other has metadata.uid or metadata.resourceVersion
// in it.
type PatchIntent struct {
	Target
	Type  PatchType       `json:"type"`
	Patch json.RawMessage `json:"patch"`
}

// HTTPIntent sends an HTTP request. Its result has the response, whatever its
// status is.
type HTTPIntent struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"` // http or https, with neither user nor fragment
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
}

// EventType is how much an event matters.
type EventType string

// The types of events.
const (
	EventNormal  EventType = "Normal"
	EventWarning EventType = "Warning"
)

// EventIntent tells of something, as a Kubernetes event about the object.
type EventIntent struct {
	Type    EventType `json:"type"`
	Reason  string    `json:"reason"`  // one word, such as BucketNotEmpty
	Message string    `json:"message"` // at most MaxReasonBytes
}

// Result is what came of an intent: an error, or what its type says.
type Result struct {
	Object *Object      `json:"object,omitempty"`
	List   *ListResult  `json:"list,omitempty"`
	HTTP   *HTTPResult  `json:"http,omitempty"`
	Error  *ResultError `json:"error,omitempty"`
}

// ListResult is a page of objects.
type ListResult struct {
	Items    []Object `json:"items"`
	Continue string   `json:"continue,omitempty"` // none: this was the last page
}

// HTTPResult is the response to an HTTP request.
type HTTPResult struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers,omitempty"` // by canonical name, such as Content-Type; several values with commas between

	// Body is the response's body, or BodyBase64 where it is no UTF-8 text.
	Body       string `json:"body,omitempty"`
	BodyBase64 []byte `json:"bodyBase64,omitempty"`
	Truncated  bool   `json:"truncated,omitempty"` // it was longer than the host reads
}

// ResultError is why an intent was not carried out. One that may be gone by the
// next time (Conflict, Unavailable) is no reason to fail: Wait, or Act again.
type ResultError struct {
	Reason  ErrorReason `json:"reason"`
	Message string      `json:"message"`
}

// ErrorReason is what kind of error came of an intent.
type ErrorReason string

// The reasons for errors.
const (
	ErrorNotGranted    ErrorReason = "NotGranted" // no grant covers it
	ErrorForbidden     ErrorReason = "Forbidden"  // the service account may not
	ErrorNotFound      ErrorReason = "NotFound"
	ErrorAlreadyExists ErrorReason = "AlreadyExists"
	ErrorConflict      ErrorReason = "Conflict"    // another uid or resourceVersion than was asked for
	ErrorExpired       ErrorReason = "Expired"     // a continue that is too old: list from the start
	ErrorInvalid       ErrorReason = "Invalid"     // it makes no sense to the API server, or has no such type
	ErrorUnavailable   ErrorReason = "Unavailable" // nobody answered, or not in time
)
