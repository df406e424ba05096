package hostabi

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// MarshalRequest writes a request as a module is given it: with every list and
// map there, if empty, so that a policy need not ask first whether it is.
func MarshalRequest(r Request) ([]byte, error) {
	r.APIVersion = Version
	if r.Owners == nil {
		r.Owners = []Owner{}
	}
	if r.Dependents.ByKind == nil {
		r.Dependents.ByKind = []KindCount{}
	}
	if r.Results == nil {
		r.Results = map[string]Result{}
	}
	if r.Withheld == nil {
		r.Withheld = []string{}
	}
	if len(r.Policy.Settings) == 0 {
		r.Policy.Settings = json.RawMessage("{}")
	}
	data, err := marshal(r)
	switch {
	case err != nil:
		return nil, fmt.Errorf("write a request: %w", err)
	case len(data) > MaxRequestBytes:
		return nil, fmt.Errorf("write a request: it has %d bytes, where at most %d are allowed", len(data), MaxRequestBytes)
	}
	return data, nil
}

// MarshalVerdict writes a verdict as ParseVerdict reads it. It does not check
// what that checks.
func MarshalVerdict(v Verdict) ([]byte, error) {
	if err := documents(v); err != nil {
		return nil, fmt.Errorf("write a verdict: %w", err)
	}
	data, err := marshal(v)
	if err != nil {
		return nil, fmt.Errorf("write a verdict: %w", err)
	}
	return data, nil
}

// documents sees that the documents in a verdict are JSON, before encoding/json
// finds out: in a module that TinyGo built, its errors are traps.
func documents(v Verdict) error {
	if len(v.State) != 0 && !json.Valid(v.State) {
		return fmt.Errorf("state is not JSON")
	}
	for _, i := range v.Intents {
		if i.Create != nil && !json.Valid(i.Create.Object) {
			return fmt.Errorf("the object of intent %q is not JSON", i.ID)
		}
		if i.Patch != nil && !json.Valid(i.Patch.Patch) {
			return fmt.Errorf("the patch of intent %q is not JSON", i.ID)
		}
	}
	return nil
}

// marshal leaves '<', '>' and '&' as they are: nothing here is HTML, and a
// document that was read comes out unchanged.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
