package release

import "encoding/json"

// Notes is the annotation that holds what is remembered of an object for finalizers.
const Notes = "gleaner.dev/finalizers"

// forget leaves what is remembered for some finalizers out; nil, if nothing is left.
func forget(text string, of func(finalizer string) bool) *string {
	var notes struct {
		UID json.RawMessage            `json:"uid"`
		By  map[string]json.RawMessage `json:"by"`
	}
	if json.Unmarshal([]byte(text), &notes) != nil {
		return nil // it says nothing to anybody
	}
	for finalizer := range notes.By {
		if of(finalizer) {
			delete(notes.By, finalizer)
		}
	}
	if len(notes.By) == 0 {
		return nil
	}
	data, err := json.Marshal(notes)
	if err != nil {
		return nil
	}
	kept := string(data)
	return &kept
}
