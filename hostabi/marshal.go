package hostabi

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// MarshalRequest encodes a request for a module. Every list and map is present,
// even if empty, so that a policy need not check for it.
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
		return nil, fmt.Errorf("encode request: %w", err)
	case len(data) > MaxRequestBytes:
		return nil, fmt.Errorf("encode request: %d bytes exceed the limit of %d", len(data), MaxRequestBytes)
	}
	return data, nil
}

// MarshalVerdict encodes a verdict so that ParseVerdict can parse it. It does not
// validate the verdict.
func MarshalVerdict(v Verdict) ([]byte, error) {
	if err := checkDocuments(v); err != nil {
		return nil, fmt.Errorf("encode verdict: %w", err)
	}
	data, err := marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode verdict: %w", err)
	}
	return data, nil
}

// checkDocuments checks that the documents in a verdict are valid JSON, before
// encoding/json does: in a module built with TinyGo, its errors are traps.
func checkDocuments(v Verdict) error {
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

// marshal encodes JSON without escaping '<', '>' and '&', so that a document that
// was parsed is encoded unchanged.
func marshal(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
