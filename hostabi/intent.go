package hostabi

import "encoding/json"

// Intent is an operation that a module asks the host to carry out. Exactly one of
// its pointers is set, and defines the operation.
//
// The host carries out an intent only if a grant covers it, with the permissions of
// the service account in the policy. The host adds credentials; the module does not
// see them.
type Intent struct {
	// ID identifies the intent's result: up to 63 letters, digits, '-', '_' and
	// '.', unique in a verdict.
	ID string `json:"id"`

	Get    *GetIntent    `json:"get,omitempty"`
	List   *ListIntent   `json:"list,omitempty"`
	Create *CreateIntent `json:"create,omitempty"`
	Delete *DeleteIntent `json:"delete,omitempty"`
	Patch  *PatchIntent  `json:"patch,omitempty"`
	HTTP   *HTTPIntent   `json:"http,omitempty"`
	Event  *EventIntent  `json:"event,omitempty"`
}

// IntentType is the type of an intent.
type IntentType string

// The types of intents. Each is the name of its field.
const (
	IntentGet    IntentType = "get"
	IntentList   IntentType = "list"
	IntentCreate IntentType = "create"
	IntentDelete IntentType = "delete"
	IntentPatch  IntentType = "patch"
	IntentHTTP   IntentType = "http"
	IntentEvent  IntentType = "event"
)

// ReadOnly reports whether an intent of this type changes nothing in the cluster, and
// sends nothing out of it.
func (t IntentType) ReadOnly() bool { return t == IntentGet || t == IntentList }

// Type returns the type of the intent, or "" if none or several of its fields are
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

// Target is the object that an intent refers to.
type Target struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Namespace  string `json:"namespace,omitempty"` // empty: a cluster-scoped object
	Name       string `json:"name"`
}

// GetIntent gets an object. Its result has the object.
type GetIntent struct{ Target }

// ListIntent lists objects of a kind. Its result has a list.
type ListIntent struct {
	APIVersion    string `json:"apiVersion"`
	Kind          string `json:"kind"`
	Namespace     string `json:"namespace,omitempty"` // empty: all namespaces
	LabelSelector string `json:"labelSelector,omitempty"`
	FieldSelector string `json:"fieldSelector,omitempty"`
	Limit         int    `json:"limit,omitempty"`    // from 1 to MaxListLimit, the default
	Continue      string `json:"continue,omitempty"` // from the previous result, for the next page
}

// CreateIntent creates an object with a name: if an evaluation is repeated, the
// second create has the result AlreadyExists. Its result has the object.
type CreateIntent struct {
	Object json.RawMessage `json:"object"` // the whole object
}

// DeleteIntent deletes an object, if it has the given UID.
type DeleteIntent struct {
	Target
	UID                string      `json:"uid"`                       // precondition
	ResourceVersion    string      `json:"resourceVersion,omitempty"` // precondition, if not empty
	Propagation        Propagation `json:"propagation,omitempty"`
	GracePeriodSeconds *int64      `json:"gracePeriodSeconds,omitempty"`
}

// PatchType is the format of a patch.
type PatchType string

// The types of patches. A merge patch and an apply patch are objects, a JSON patch
// is an array of operations.
const (
	PatchMerge PatchType = "merge"
	PatchJSON  PatchType = "json"
	PatchApply PatchType = "apply" // server-side apply, with a field manager for the policy
)

// PatchIntent patches an object. Its result has the object. To patch the object
// only if it is unchanged, set metadata.uid or metadata.resourceVersion in the
// patch.
type PatchIntent struct {
	Target
	Type  PatchType       `json:"type"`
	Patch json.RawMessage `json:"patch"`
}

// HTTPIntent sends an HTTP request. Its result has the response, with any status
// code.
type HTTPIntent struct {
	Method  string            `json:"method"`
	URL     string            `json:"url"` // http or https, without user and fragment
	Headers map[string]string `json:"headers,omitempty"`
	Body    string            `json:"body,omitempty"`
}

// EventType is the type of a Kubernetes event.
type EventType string

// The types of events.
const (
	EventNormal  EventType = "Normal"
	EventWarning EventType = "Warning"
)

// EventIntent records a Kubernetes event about the object.
type EventIntent struct {
	Type    EventType `json:"type"`
	Reason  string    `json:"reason"`  // in CamelCase, such as BucketNotEmpty
	Message string    `json:"message"` // at most MaxReasonBytes
}

// Result is the result of an intent: an error, or the field for its type.
type Result struct {
	Object *Object      `json:"object,omitempty"`
	List   *ListResult  `json:"list,omitempty"`
	HTTP   *HTTPResult  `json:"http,omitempty"`
	Error  *ResultError `json:"error,omitempty"`
}

// ListResult is a page of objects.
type ListResult struct {
	Items    []Object `json:"items"`
	Continue string   `json:"continue,omitempty"` // empty: this was the last page
}

// HTTPResult is the response to an HTTP request.
type HTTPResult struct {
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers,omitempty"` // by canonical name, such as Content-Type; several values are separated by commas

	// Body is the response's body. A body that is not UTF-8 text is in BodyBase64.
	Body       string `json:"body,omitempty"`
	BodyBase64 []byte `json:"bodyBase64,omitempty"`
	Truncated  bool   `json:"truncated,omitempty"` // the body exceeded the host's limit
}

// ResultError is the reason why an intent was not carried out. After a temporary
// one (Conflict, Unavailable), do not fail: Wait, or Act again.
type ResultError struct {
	Reason  ErrorReason `json:"reason"`
	Message string      `json:"message"`
}

// ErrorReason is the reason of a ResultError.
type ErrorReason string

// The reasons.
const (
	ErrorNotGranted    ErrorReason = "NotGranted" // no grant covers the intent
	ErrorForbidden     ErrorReason = "Forbidden"  // the service account lacks the permission
	ErrorNotFound      ErrorReason = "NotFound"
	ErrorAlreadyExists ErrorReason = "AlreadyExists"
	ErrorConflict      ErrorReason = "Conflict"    // the uid or resourceVersion does not match
	ErrorExpired       ErrorReason = "Expired"     // the continue token has expired: list from the start
	ErrorInvalid       ErrorReason = "Invalid"     // the API server rejected it, or does not serve the type
	ErrorUnavailable   ErrorReason = "Unavailable" // there was no response, or not in time
)
