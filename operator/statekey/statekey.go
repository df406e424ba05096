// Package statekey signs what Gleaner keeps in annotations of objects, and verifies
// it when it is read back.
//
// Whoever may update an object may write any annotation on it. A state annotation
// that counts must therefore be one that Gleaner wrote itself: it is signed by
// HMAC-SHA256 with a key that only the operator has. A signature is about one object
// and one purpose, so that it can't be copied to another object. It says nothing of
// time: an earlier annotation of the same object can be put back.
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
	// Current is the name of the key that signs. All keys verify.
	Current = "current"

	// MinBytes is the minimum length of a key.
	MinBytes = 32

	// maxKeys bounds the work of verifying a forged signature.
	maxKeys = 16
)

// Purpose tells the uses of a key apart: a signature for one is none for another.
type Purpose string

// The purposes.
const (
	Memo      Purpose = "memo"      // what is remembered of an object for policies
	Finalizer Purpose = "finalizer" // what is remembered of an object for one finalizer
)

// Subject is what a signed document is about.
type Subject struct {
	Purpose Purpose
	UID     types.UID // of the object that has the annotation
	Name    string    // tells several documents on one object apart; may be empty
}

// Signed is a document with its signature.
type Signed struct {
	Signature string          `json:"signature"`
	Data      json.RawMessage `json:"data"`
}

// Keys sign and verify. The zero Keys do neither.
type Keys struct {
	current []byte
	all     [][]byte
}

// ErrNoKey is returned where something is to be signed and there is no key.
var ErrNoKey = errors.New("there is no key")

// Parse reads keys from the data of a Secret: the entry named Current signs, and
// every entry verifies.
func Parse(data map[string][]byte) (Keys, error) {
	if len(data) > maxKeys {
		return Keys{}, fmt.Errorf("read keys: there are %d; keep at most %d", len(data), maxKeys)
	}
	current, ok := data[Current]
	if !ok {
		return Keys{}, fmt.Errorf("read keys: none is named %s, which is the one that signs", Current)
	}
	k := Keys{current: bytes.Clone(current)}
	for _, name := range slices.Sorted(maps.Keys(data)) {
		if len(data[name]) < MinBytes {
			return Keys{}, fmt.Errorf("read key %s: it has %d bytes; use at least %d random ones", name, len(data[name]), MinBytes)
		}
		k.all = append(k.all, bytes.Clone(data[name]))
	}
	return k, nil
}

// And returns keys that sign as these do, and verify what others have signed, too.
func (k Keys) And(others Keys) Keys {
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
	return Signed{Signature: hex.EncodeToString(s.sum(k.current, data)), Data: data}, nil
}

// Verify reports whether a document was signed for a subject by one of the keys.
func (k Keys) Verify(s Subject, document Signed) bool {
	signature, err := hex.DecodeString(document.Signature)
	if err != nil || len(signature) != sha256.Size {
		return false
	}
	valid := false
	for _, key := range k.all {
		valid = hmac.Equal(signature, s.sum(key, document.Data)) || valid
	}
	return valid
}

// Equal reports whether two sets of keys are the same.
func (k Keys) Equal(other Keys) bool {
	return bytes.Equal(k.current, other.current) && slices.EqualFunc(k.all, other.all, bytes.Equal)
}

// sum is the MAC of a document. Each part is preceded by its length, so that no two
// different lists of parts are the same message.
func (s Subject) sum(key, data []byte) []byte {
	mac := hmac.New(sha256.New, key)
	for _, part := range [][]byte{[]byte("gleaner.dev state v1"), []byte(s.Purpose), []byte(s.UID), []byte(s.Name), data} {
		var length [8]byte
		binary.BigEndian.PutUint64(length[:], uint64(len(part)))
		mac.Write(length[:])
		mac.Write(part)
	}
	return mac.Sum(nil)
}
