package statekey_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/operator/statekey"
)

func key(b byte) []byte { return bytes.Repeat([]byte{b}, statekey.MinBytes) }

func keys(t *testing.T, data map[string][]byte) statekey.Keys {
	t.Helper()
	k, err := statekey.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

var subject = statekey.Subject{Purpose: statekey.Finalizer, UID: "uid", Name: "example.com/f"}

func TestSignature_IsValidForOneSubjectAndDocument(t *testing.T) {
	k := keys(t, map[string][]byte{statekey.Current: key(1)})
	signed, err := k.Sign(subject, map[string]any{"state": "<a>"})
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(signed)
	if err != nil {
		t.Fatal(err)
	}
	var read statekey.Signed
	if err := json.Unmarshal(text, &read); err != nil || !k.Verify(subject, read) {
		t.Fatalf("read back from %s: %v, and it is not valid", text, err)
	}
	for name, c := range map[string]struct {
		subject statekey.Subject
		change  func(*statekey.Signed)
		keys    statekey.Keys
	}{
		"another object":    {subject: statekey.Subject{Purpose: subject.Purpose, UID: "other", Name: subject.Name}},
		"another finalizer": {subject: statekey.Subject{Purpose: subject.Purpose, UID: subject.UID, Name: "example.com/g"}},
		"another purpose":   {subject: statekey.Subject{Purpose: statekey.Policy, UID: subject.UID, Name: subject.Name}},
		"parts moved":       {subject: statekey.Subject{Purpose: subject.Purpose, UID: "uidexample.com/", Name: "f"}},
		"another document":  {subject: subject, change: func(s *statekey.Signed) { s.Data = json.RawMessage(`{"state":"b"}`) }},
		"no signature":      {subject: subject, change: func(s *statekey.Signed) { s.Signature = "" }},
		"half a signature":  {subject: subject, change: func(s *statekey.Signed) { s.Signature = s.Signature[:32] }},
		"not hexadecimal":   {subject: subject, change: func(s *statekey.Signed) { s.Signature = strings.Repeat("x", 64) }},
		"another key":       {subject: subject, keys: keys(t, map[string][]byte{statekey.Current: key(2)})},
	} {
		s, verifier := read, k
		if c.change != nil {
			c.change(&s)
		}
		if !c.keys.Equal(statekey.Keys{}) {
			verifier = c.keys
		}
		if verifier.Verify(c.subject, s) {
			t.Errorf("%s: the signature is accepted", name)
		}
	}
}

func TestKeys_PreviousKeyVerifiesAfterRotation(t *testing.T) {
	before := keys(t, map[string][]byte{statekey.Current: key(1)})
	old, err := before.Sign(subject, 1)
	if err != nil {
		t.Fatal(err)
	}
	during := keys(t, map[string][]byte{statekey.Current: key(2), "previous": key(1)})
	fresh, err := during.Sign(subject, 1)
	if err != nil {
		t.Fatal(err)
	}
	after := keys(t, map[string][]byte{statekey.Current: key(2)})
	if !during.Verify(subject, old) || !during.Verify(subject, fresh) {
		t.Error("with both keys, a signature of one of them is not accepted")
	}
	if after.Verify(subject, old) || !after.Verify(subject, fresh) {
		t.Error("once the former key is removed, its signatures must not count, and those of the current key must")
	}
}

func TestZeroKeys_NeitherSignNorVerify(t *testing.T) {
	var none statekey.Keys
	if _, err := none.Sign(subject, 1); !errors.Is(err, statekey.ErrNoKey) {
		t.Errorf("signed without a key: %v", err)
	}
	signed, err := keys(t, map[string][]byte{statekey.Current: key(1)}).Sign(subject, 1)
	if err != nil || none.Verify(subject, signed) {
		t.Errorf("verified without a key (%v)", err)
	}
}

func TestParse_RejectsMissingOrShortKeys(t *testing.T) {
	many := map[string][]byte{}
	for i := range 17 {
		many[string(rune('a'+i))] = key(1)
	}
	many[statekey.Current] = key(1)
	for name, data := range map[string]map[string][]byte{
		"no entries": nil, "none is current": {"previous": key(1)}, "the current one is short": {statekey.Current: key(1)[:31]},
		"the current one is empty": {statekey.Current: nil}, "another one is short": {statekey.Current: key(1), "previous": {1}}, "too many": many,
	} {
		if k, err := statekey.Parse(data); err == nil || !k.Equal(statekey.Keys{}) {
			t.Errorf("%s: accepted", name)
		}
	}
}
