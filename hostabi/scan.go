package hostabi

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"unicode/utf8"
)

// scan parses a single JSON document.
func scan(data []byte) (value, *VerdictError) {
	switch {
	case len(bytes.TrimSpace(data)) == 0:
		return value{}, errorAt(nil, "is empty: write a verdict, such as {\"decision\": \"Abstain\"}")
	case len(data) > MaxVerdictBytes:
		return value{}, errorAt(nil, "has %d bytes: write at most %d", len(data), MaxVerdictBytes)
	case !utf8.Valid(data):
		return value{}, errorAt(nil, "is not UTF-8: write JSON in UTF-8")
	case nestsDeeperThan(data, MaxVerdictDepth):
		return value{}, errorAt(nil, "is nested too deeply: write at most %d levels of objects and arrays", MaxVerdictDepth)
	}
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		return value{}, errorAt(nil, "is not one JSON document (%s): write one JSON object, and nothing after it", describeJSONError(err))
	}
	document := bytes.TrimSpace(data)
	if verr := checkDocument(document); verr != nil {
		return value{}, verr
	}
	return value{kindOf(document[0]), document}, nil
}

// describeJSONError describes a JSON error, with its position if it has one.
func describeJSONError(err error) string {
	var syntax *json.SyntaxError
	if errors.As(err, &syntax) {
		return fmt.Sprintf("%s, at byte %d", err.Error(), syntax.Offset)
	}
	return err.Error()
}

// nestsDeeperThan reports whether brackets nest deeper than a limit. It is called before
// anything recurses.
func nestsDeeperThan(data []byte, limit int) bool {
	depth, inString := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '\\' && inString:
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '{' || c == '[':
			if depth++; depth > limit {
				return true
			}
		case c == '}' || c == ']':
			depth--
		}
	}
	return false
}
