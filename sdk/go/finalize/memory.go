package finalize

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// memory is the state, as it is kept between runs.
type memory struct {
	Done  []string          `json:"done,omitempty"`  // by Once
	Pages map[string]string `json:"pages,omitempty"` // where Each goes on in the next attempt
	Own   json.RawMessage   `json:"own,omitempty"`   // by Remember
}

func recall(state json.RawMessage) (memory, error) {
	var m memory
	if len(state) == 0 {
		return m, nil
	}
	if err := json.Unmarshal(state, &m); err != nil {
		return memory{}, fmt.Errorf("read the state: it was not written by package finalize: %w", err)
	}
	return m, nil
}

// state is what an answer has to carry: nothing if it would say what was there
// before.
func (m memory) state(before json.RawMessage) (json.RawMessage, error) {
	data, err := json.Marshal(m)
	switch {
	case err != nil:
		return nil, fmt.Errorf("write the state: %w", err)
	case len(data) > hostabi.MaxStateBytes:
		return nil, fmt.Errorf("write the state: it has %d bytes, and may have %d: remember less", len(data), hostabi.MaxStateBytes)
	case len(before) == 0 && string(data) == "{}", bytes.Equal(data, before):
		return nil, nil
	}
	return data, nil
}

func (m *memory) isDone(id string) bool {
	for _, done := range m.Done {
		if done == id {
			return true
		}
	}
	return false
}

// goOn says where Each begins in the next attempt; "" is the start.
func (m *memory) goOn(id, token string) {
	switch {
	case token == "":
		delete(m.Pages, id)
	case m.Pages == nil:
		m.Pages = map[string]string{id: token}
	default:
		m.Pages[id] = token
	}
}

func (m *memory) remember(state any) error {
	data, err := json.Marshal(state)
	if err != nil {
		return fmt.Errorf("remember: %w", err)
	}
	m.Own = data
	return nil
}

func (m *memory) recall(into any) error {
	if err := json.Unmarshal(m.Own, into); err != nil {
		return fmt.Errorf("recall what was remembered: %w", err)
	}
	return nil
}
