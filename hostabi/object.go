package hostabi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Object is a Kubernetes object. In documents it is the object's JSON; here, the
// fields that every object has are decoded, and Body has the rest.
type Object struct {
	APIVersion string
	Kind       string
	Metadata   Metadata

	// Body is the JSON of the whole object. If it is set, it alone is encoded. An
	// object that was decoded from JSON has one; an object without one is encoded
	// from its other fields.
	Body json.RawMessage
}

// Metadata is the part of an object's metadata that decisions depend on. With
// needs: Reference, a policy receives only name, namespace, uid, resourceVersion,
// the owner references, and the finalizers orphan and foregroundDeletion.
type Metadata struct {
	Name              string            `json:"name"`
	Namespace         string            `json:"namespace,omitempty"`
	UID               string            `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	Generation        int64             `json:"generation,omitempty"`
	CreationTimestamp *time.Time        `json:"creationTimestamp,omitempty"`
	DeletionTimestamp *time.Time        `json:"deletionTimestamp,omitempty"`
	Labels            map[string]string `json:"labels,omitempty"`
	Annotations       map[string]string `json:"annotations,omitempty"`
	OwnerReferences   []Reference       `json:"ownerReferences,omitempty"`
	Finalizers        []string          `json:"finalizers,omitempty"`
}

// header is what is decoded of an Object.
type header struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
}

// MarshalJSON implements json.Marshaler. The zero Object is {}.
func (o Object) MarshalJSON() ([]byte, error) {
	var e encoder
	e.object(o)
	return e.b, e.err
}

// isZero reports whether the object is none.
func (o Object) isZero() bool {
	return o.Kind == "" && o.APIVersion == "" && o.Metadata.UID == "" && o.Metadata.Name == ""
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *Object) UnmarshalJSON(data []byte) error {
	var h header
	if err := json.Unmarshal(data, &h); err != nil {
		return fmt.Errorf("decode object: %w", err)
	}
	*o = Object{APIVersion: h.APIVersion, Kind: h.Kind, Metadata: h.Metadata}
	if text := bytes.TrimSpace(data); !bytes.Equal(text, []byte("{}")) && !bytes.Equal(text, []byte("null")) {
		o.Body = bytes.Clone(text)
	}
	return nil
}

// Decode decodes the object into a type of the caller's, which needs only the
// fields that the caller uses.
func (o Object) Decode(into any) error {
	body, err := o.MarshalJSON()
	if err != nil {
		return fmt.Errorf("encode %s %s: %w", o.Kind, o.Metadata.Name, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("decode %s %s: %w", o.Kind, o.Metadata.Name, err)
	}
	return nil
}

// Group returns the API group of the object, "" for the core group.
func (o Object) Group() string {
	group, _ := splitAPIVersion(o.APIVersion)
	return group
}

// Is reports whether the object has this group and kind, in any version.
func (o Object) Is(group, kind string) bool { return o.Kind == kind && o.Group() == group }
