// Package statekey signs and verifies the state that Gleaner keeps in annotations of
// objects.
//
// Everyone who may update an object may write any annotation on it. State annotations are
// therefore signed by HMAC-SHA256 with a key that only the operator has. A signature is
// valid for one object and one purpose, so that it can't be copied to another object. It
// does not include a time: an earlier annotation of the same object can be restored.
//
// It reads no Secret; see operator/keystore.
package statekey

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
)

const (
	// Current is the name of the signing key. All keys verify.
	Current = "current"

	// MinBytes is the minimum length of a key.
	MinBytes = 32

	// maxKeys limits the work for verifying a forged signature.
	maxKeys = 16
)

// A Purpose is the use of a signature, which is not valid for another purpose.
type Purpose string

// The purposes.
const (
	Policy      Purpose = "memo"         // state of an object for policies
	Finalizer   Purpose = "finalizer"    // state of an object for one finalizer
	GracePeriod Purpose = "grace period" // of the request to delete an object
)

// A Subject identifies the object and use of a signed document.
type Subject struct {
	Purpose Purpose
	UID     types.UID // of the object that has the annotation
	Name    string    // distinguishes several documents on one object; may be empty
}

// A Signed is a document with its signature.
type Signed struct {
	Signature string          `json:"signature"`
	Data      json.RawMessage `json:"data"`
}

// Keys sign and verify. The zero Keys do neither.
type Keys struct {
	current []byte
	all     [][]byte
}

// ErrNoKey is returned by Sign of the zero Keys.
var ErrNoKey = errors.New("no key available")

// Parse parses the data of a Secret: the key named Current signs, and every key verifies.
func Parse(data map[string][]byte) (Keys, error) {
	if len(data) > maxKeys {
		return Keys{}, fmt.Errorf("read keys: got %d keys; the maximum is %d", len(data), maxKeys)
	}
	current, ok := data[Current]
	if !ok {
		return Keys{}, fmt.Errorf("read keys: the signing key %s is missing", Current)
	}
	k := Keys{current: bytes.Clone(current)}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if len(data[name]) < MinBytes {
			return Keys{}, fmt.Errorf("read key %s: got %d bytes; use at least %d random bytes", name, len(data[name]), MinBytes)
		}
		k.all = append(k.all, bytes.Clone(data[name]))
	}
	return k, nil
}

// WithVerifiers returns keys that sign like k, and verify signatures of k and others.
func (k Keys) WithVerifiers(others Keys) Keys {
	return Keys{current: k.current, all: slices.Concat(k.all, others.all)}
}

// Sign signs a JSON document.
func (k Keys) Sign(s Subject, document any) (Signed, error) {
	if len(k.current) == 0 {
		return Signed{}, fmt.Errorf("sign state: %w", ErrNoKey)
	}
	data, err := json.Marshal(document)
	if err != nil {
		return Signed{}, fmt.Errorf("sign state: %w", err)
	}
	return Signed{Signature: hex.EncodeToString(s.mac(k.current, data)), Data: data}, nil
}

// Verify reports whether a document was signed for a subject by one of the keys.
func (k Keys) Verify(s Subject, document Signed) bool {
	signature, err := hex.DecodeString(document.Signature)
	if err != nil || len(signature) != sha256.Size {
		return false
	}
	valid := false
	for _, key := range k.all {
		valid = hmac.Equal(signature, s.mac(key, document.Data)) || valid
	}
	return valid
}

// Equal reports whether two sets of keys are the same.
func (k Keys) Equal(other Keys) bool {
	return bytes.Equal(k.current, other.current) && slices.EqualFunc(k.all, other.all, bytes.Equal)
}

// mac returns the MAC of a document. Each part is preceded by its length, so that different
// lists of parts are different messages.
func (s Subject) mac(key, data []byte) []byte {
	mac := hmac.New(sha256.New, key)
	for _, part := range [][]byte{[]byte("gleaner.dev state v1"), []byte(s.Purpose), []byte(s.UID), []byte(s.Name), data} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		mac.Write(length[:])
		mac.Write(part)
	}
	return mac.Sum(nil)
}
