package archive

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"

	"filippo.io/age"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// MaxObjectBytes is the maximum size of an object's JSON, in bytes. API servers accept
	// requests of up to 3 MiB, and etcd 1.5 MiB.
	MaxObjectBytes = 4 << 20

	// MaxBodyBytes is the maximum size of a stored body, in bytes: that of an object that
	// cannot be compressed, encrypted to MaxRecipients.
	MaxBodyBytes = MaxObjectBytes + 256<<10

	// MaxHeaderBytes is the maximum size of a header's JSON, in bytes. Most of a large one are
	// owners.
	MaxHeaderBytes = 1 << 20

	// MaxRecordBytes is the maximum size of a record's JSON, in bytes.
	MaxRecordBytes = 1 << 20
)

// Archivable reports whether objects of a kind can be archived with this number of recipients,
// and if not, why. Secrets are archived only if they are encrypted.
func Archivable(gk schema.GroupKind, recipients int) (ok bool, reason string) {
	if gk == (schema.GroupKind{Kind: "Secret"}) && recipients == 0 {
		return false, "Secrets are archived only if they are encrypted: add age recipients to the policy"
	}
	return true, ""
}

// Seal makes an entry of an object: its JSON without managedFields, compressed, and encrypted to
// the recipients if there are any. Equal objects have equal bodies if they are not encrypted.
//
// The header needs a Time. Its ID, Object, ResourceVersion, Owners, Content, Size and Recipients
// are set from the object. The entry shares no memory with the object. The error is ErrTooLarge
// for an object above MaxObjectBytes.
func Seal(o *unstructured.Unstructured, h Header, recipients []age.Recipient) (Entry, error) {
	ref := ReferenceOf(o)
	fail := func(err error) (Entry, error) { return Entry{}, fmt.Errorf("seal %s: %w", ref, err) }
	if ok, reason := Archivable(o.GroupVersionKind().GroupKind(), len(recipients)); !ok {
		return fail(fmt.Errorf("%s", reason))
	}
	plain, err := json.Marshal(withoutManagedFields(o.Object))
	if err != nil {
		return fail(fmt.Errorf("encode: %w", err))
	}
	if len(plain) > MaxObjectBytes {
		return fail(fmt.Errorf("%d bytes of JSON, and the maximum is %d: %w", len(plain), MaxObjectBytes, ErrTooLarge))
	}
	body, err := Compress(plain)
	if err != nil {
		return fail(err)
	}
	if len(recipients) > 0 {
		if body, err = encrypt(body, recipients); err != nil {
			return fail(err)
		}
	}
	if h.ID, err = newID(h.Time); err != nil {
		return fail(err)
	}
	h.Object, h.ResourceVersion, h.Owners = ref, o.GetResourceVersion(), ownersOf(o)
	h.Content, h.Size, h.Recipients = DigestOf(body), int64(len(body)), len(recipients)
	e := Entry{Header: h, Body: body}
	if err := e.Validate(); err != nil {
		return Entry{}, err
	}
	return e, nil
}

// withoutManagedFields copies only what it changes.
func withoutManagedFields(object map[string]any) map[string]any {
	metadata, ok := object["metadata"].(map[string]any)
	if !ok {
		return object
	}
	if _, ok := metadata["managedFields"]; !ok {
		return object
	}
	object, metadata = maps.Clone(object), maps.Clone(metadata)
	delete(metadata, "managedFields")
	object["metadata"] = metadata
	return object
}

func encrypt(data []byte, recipients []age.Recipient) ([]byte, error) {
	var out bytes.Buffer
	out.Grow(len(data) + 1024)
	w, err := age.Encrypt(&out, recipients...)
	if err != nil {
		return nil, fmt.Errorf("encrypt: %w", err)
	}
	if _, err := w.Write(data); err != nil {
		return nil, fmt.Errorf("encrypt: %w", err)
	}
	if err := w.Close(); err != nil {
		return nil, fmt.Errorf("encrypt: %w", err)
	}
	return out.Bytes(), nil
}

// DigestOf returns the digest of a stored body.
func DigestOf(body []byte) Digest {
	sum := sha256.Sum256(body)
	return Digest(hex.EncodeToString(sum[:]))
}

// ReferenceOf returns the reference to an object.
func ReferenceOf(o *unstructured.Unstructured) Reference {
	return Reference{
		APIVersion: o.GetAPIVersion(), Kind: o.GetKind(),
		Namespace: o.GetNamespace(), Name: o.GetName(), UID: o.GetUID(),
	}
}

// ownersOf returns the owners of an object, in the object's namespace: whether they are
// cluster-scoped is not in the object.
func ownersOf(o *unstructured.Unstructured) []Reference {
	var owners []Reference
	for _, r := range o.GetOwnerReferences() {
		owners = append(owners, Reference{
			APIVersion: r.APIVersion, Kind: r.Kind, Namespace: o.GetNamespace(), Name: r.Name, UID: r.UID,
		})
	}
	return owners
}

// String returns Kind namespace/name.
func (r Reference) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}

// GroupKind returns the group and kind.
func (r Reference) GroupKind() schema.GroupKind {
	return schema.FromAPIVersionAndKind(r.APIVersion, r.Kind).GroupKind()
}

// readAll reads up to MaxBodyBytes.
func readAll(r io.Reader) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, MaxBodyBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxBodyBytes {
		return nil, fmt.Errorf("above %d bytes: %w", MaxBodyBytes, ErrTooLarge)
	}
	return data, nil
}
