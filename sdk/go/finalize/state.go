package finalize

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// savedState is the state that is kept between runs.
type savedState struct {
	Done  []string          `json:"done,omitempty"`  // by Once
	Pages map[string]string `json:"pages,omitempty"` // where Each continues in the next attempt
	Own   json.RawMessage   `json:"own,omitempty"`   // by Remember
}

func decodeState(state json.RawMessage) (savedState, error) {
	var m savedState
	if len(state) == 0 {
		return m, nil
	}
	if err := json.Unmarshal(state, &m); err != nil {
		return savedState{}, fmt.Errorf("decode state: not written by package finalize: %w", err)
	}
	return m, nil
}

// state encodes the state for the verdict. It returns nil if the state is
// unchanged.
func (m savedState) state(before json.RawMessage) (json.RawMessage, error) {
	data, err := json.Marshal(m)
	switch {
	case err != nil:
		return nil, fmt.Errorf("encode state: %w", err)
	case len(data) > hostabi.MaxStateBytes:
		return nil, fmt.Errorf("encode state: it has %d bytes, at most %d are allowed: save less", len(data), hostabi.MaxStateBytes)
	case len(before) == 0 && string(data) == "{}", bytes.Equal(data, before):
		return nil, nil
	}
	return data, nil
}

func (m *savedState) isDone(id string) bool {
	for _, done := range m.Done {
		if done == id {
			return true
		}
	}
	return false
}

// setPage sets where Each continues in the next attempt; "" is the start.
func (m *savedState) setPage(id, token string) {
	switch {
	case token == "":
		delete(m.Pages, id)
	case m.Pages == nil:
		m.Pages = map[string]string{id: token}
	default:
		m.Pages[id] = token
	}
}

func (m *savedState) save(state any) error {
	data, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("save state: %w", err)
	}
	m.Own = data
	return nil
}

func (m *savedState) load(into any) error {
	if err := json.Unmarshal(m.Own, into); err != nil {
		return fmt.Errorf("load state: %w", err)
	}
	return nil
}
