package hostabi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"
)

// Object is a Kubernetes object. In documents it is the object as Kubernetes
// writes it; here, what every object has is in fields, and the rest in Body.
type Object struct {
	APIVersion string
	Kind       string
	Metadata   Metadata

	// Body is the whole document, and where it is present it alone is written.
	// An object that was read from JSON has one; an object made from fields has
	// none, and consists of them.
	Body json.RawMessage
}

// Metadata is the part of an object's metadata that decisions turn on. What a
// policy with needs: Reference is asked about has no more than its coordinates,
// owner references and the finalizers of garbage collection, orphan and
// foregroundDeletion.
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

// header is an Object without its body, as JSON has it.
type header struct {
	APIVersion string   `json:"apiVersion"`
	Kind       string   `json:"kind"`
	Metadata   Metadata `json:"metadata"`
}

// MarshalJSON implements json.Marshaler. No object at all is {}.
func (o Object) MarshalJSON() ([]byte, error) {
	switch {
	case len(o.Body) != 0:
		return o.Body, nil
	case o.Kind == "" && o.APIVersion == "" && o.Metadata.UID == "" && o.Metadata.Name == "":
		return []byte("{}"), nil
	default:
		return json.Marshal(header{o.APIVersion, o.Kind, o.Metadata})
	}
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *Object) UnmarshalJSON(data []byte) error {
	var h header
	if err := json.Unmarshal(data, &h); err != nil {
		return fmt.Errorf("read an object: %w", err)
	}
	*o = Object{APIVersion: h.APIVersion, Kind: h.Kind, Metadata: h.Metadata}
	if text := bytes.TrimSpace(data); !bytes.Equal(text, []byte("{}")) && !bytes.Equal(text, []byte("null")) {
		o.Body = bytes.Clone(text)
	}
	return nil
}

// Decode reads the object into a type of the caller's, which needs only the
// fields that the caller is interested in.
func (o Object) Decode(into any) error {
	body, err := o.MarshalJSON()
	if err != nil {
		return fmt.Errorf("write %s %s: %w", o.Kind, o.Metadata.Name, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("read %s %s: %w", o.Kind, o.Metadata.Name, err)
	}
	return nil
}

// Group is the API group of the object's type; empty for the core group.
func (o Object) Group() string {
	group, _ := splitAPIVersion(o.APIVersion)
	return group
}

// Is tells whether the object is of a group and kind, whatever the version.
func (o Object) Is(group, kind string) bool { return o.Kind == kind && o.Group() == group }
