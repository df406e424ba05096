package finalize

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/sdk/go/internal/jsonread"
)

// savedState is the state that is kept between runs: a JSON object with these fields. It is
// read and written without reflection, which would be a quarter of a small module.
type savedState struct {
	Done  []string          // done: by Once
	Pages map[string]string // pages: where Each continues in the next attempt
	Own   json.RawMessage   // own: by SaveState
}

var errState = errors.New("decode state: not written by package finalize")

func decodeState(state json.RawMessage) (savedState, error) {
	var m savedState
	if len(state) == 0 {
		return m, nil
	}
	r := jsonread.New(state)
	r.Fields(func(name string) {
		switch name {
		case "done":
			m.Done = jsonread.List(r, r.Text)
		case "pages":
			m.Pages = jsonread.Map(r, r.Text)
		case "own":
			m.Own = r.Raw()
		default:
			r.Skip()
		}
	})
	if r.Failed {
		return savedState{}, errState
	}
	return m, nil
}

// state encodes the state for the verdict. It returns nil if the state is
// unchanged.
func (m savedState) state(before json.RawMessage) (json.RawMessage, error) {
	data := m.encode()
	switch {
	case len(data) > hostabi.MaxStateBytes:
		return nil, errors.New("encode state: it has " + strconv.Itoa(len(data)) + " bytes, at most " +
			strconv.Itoa(hostabi.MaxStateBytes) + " are allowed: save less")
	case len(before) == 0 && string(data) == "{}", bytes.Equal(data, before):
		return nil, nil
	}
	return data, nil
}

// encode encodes the fields that are not empty, in the same order each time.
func (m savedState) encode() []byte {
	data := []byte{'{'}
	field := func(name string) {
		if len(data) > 1 {
			data = append(data, ',')
		}
		data = append(hostabi.AppendString(data, name), ':')
	}
	if len(m.Done) != 0 {
		field("done")
		for i, id := range m.Done {
			data = hostabi.AppendString(append(data, "[,"[min(i, 1)]), id)
		}
		data = append(data, ']')
	}
	if len(m.Pages) != 0 {
		field("pages")
		for i, id := range slices.Sorted(maps.Keys(m.Pages)) {
			data = append(hostabi.AppendString(append(data, "{,"[min(i, 1)]), id), ':')
			data = hostabi.AppendString(data, m.Pages[id])
		}
		data = append(data, '}')
	}
	if len(m.Own) != 0 {
		field("own")
		data = append(data, m.Own...)
	}
	return append(data, '}')
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
