package settings

import (
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

const (
	// maxDescription is the maximum size of a description in a problem, in bytes.
	maxDescription = 240

	// maxFields is the maximum number of fields that a problem lists.
	maxFields = 20
)

// description is what a schema says about a value.
type description struct {
	description string   // of the value, or else of the nearest field that contains it
	fields      []string // that the value may have
}

// describe returns what a schema says about the values for a part of it, which is named by a URL with a JSON pointer (RFC 6901).
func describe(schema any, location string) description {
	_, pointer, _ := strings.Cut(location, "#")
	pointer, err := url.PathUnescape(pointer)
	if err != nil {
		pointer = ""
	}
	var found description
	part := schema
	for _, step := range strings.Split(pointer, "/")[1:] {
		part = child(part, strings.NewReplacer("~1", "/", "~0", "~").Replace(step))
		object, _ := part.(map[string]any)
		if text, ok := object["description"].(string); ok {
			found.description = shorten(text, maxDescription)
		}
	}
	object, _ := part.(map[string]any)
	properties, _ := object["properties"].(map[string]any)
	found.fields = slices.Sorted(maps.Keys(properties))
	if more := len(found.fields) - maxFields; more > 0 {
		found.fields = append(found.fields[:maxFields], "…")
	}
	return found
}

// child returns a part of a schema; nil if there is none.
func child(part any, step string) any {
	switch part := part.(type) {
	case map[string]any:
		return part[step]
	case []any:
		if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(part) {
			return part[i]
		}
	}
	return nil
}
