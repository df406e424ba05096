package gleanertest

import (
	"bytes"
	"encoding"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"strconv"
	"strings"
	"testing"
)

// SchemaFile is the file in the folder of a module with the JSON Schema of its settings.
// gleaner module build adds it to the module.
const SchemaFile = "settings.schema.json"

// updateSchema is the environment variable that has CheckSettingsSchema write the file.
const updateSchema = "UPDATE_SCHEMA"

// CheckSettingsSchema fails the test if settings.schema.json in the current folder is not the schema of a type. With the
// environment variable UPDATE_SCHEMA=1, it writes the file. See SettingsSchema.
func CheckSettingsSchema(t testing.TB, settings any) {
	t.Helper()
	want, err := SettingsSchema(settings)
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv(updateSchema) == "1" {
		if err := os.WriteFile(SchemaFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if got, err := os.ReadFile(SchemaFile); err != nil || !bytes.Equal(got, want) {
		t.Fatalf("%s is not the schema of %T: run the test with %s=1, which writes it", SchemaFile, settings, updateSchema)
	}
}

// SettingsSchema returns the JSON Schema of the settings that Request.DecodeSettings decodes into a value
// of this type. The tag schema of a field has what the type can't say, and the tag doc a description:
//
//	type settings struct {
//		Size int    `json:"size" schema:"required,minimum=1" doc:"Size of the bucket in GiB."`
//		Mode string `json:"mode" schema:"enum=Keep|Wait"`
//	}
//
// Fields that the type does not have are not allowed, as DecodeSettings does not allow them.
func SettingsSchema(settings any) ([]byte, error) {
	t := reflect.TypeOf(settings)
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil, fmt.Errorf("schema of %T: settings are a struct", settings)
	}
	schema, err := schemaOf(t, nil)
	if err != nil {
		return nil, fmt.Errorf("schema of %T: %w", settings, err)
	}
	schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	data, err := json.MarshalIndent(schema, "", "  ")
	return append(data, '\n'), err
}

var (
	textType = reflect.TypeOf((*encoding.TextUnmarshaler)(nil)).Elem()
	jsonType = reflect.TypeOf((*json.Unmarshaler)(nil)).Elem()
)

// schemaOf returns the schema of a type, which is part of those in outer.
func schemaOf(t reflect.Type, outer []reflect.Type) (map[string]any, error) {
	for _, o := range outer {
		if o == t {
			return nil, fmt.Errorf("%s contains itself: write %s by hand", t, SchemaFile)
		}
	}
	outer = append(outer, t)
	switch pointer := reflect.PointerTo(t); {
	case pointer.Implements(jsonType):
		return map[string]any{}, nil // it decides itself what it accepts
	case pointer.Implements(textType):
		return map[string]any{"type": "string"}, nil
	}
	switch t.Kind() {
	case reflect.Bool:
		return map[string]any{"type": "boolean"}, nil
	case reflect.String:
		return map[string]any{"type": "string"}, nil
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return map[string]any{"type": "integer"}, nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return map[string]any{"type": "integer", "minimum": 0}, nil
	case reflect.Float32, reflect.Float64:
		return map[string]any{"type": "number"}, nil
	case reflect.Interface:
		return map[string]any{}, nil
	case reflect.Pointer:
		return schemaOf(t.Elem(), outer)
	case reflect.Slice, reflect.Array:
		if t.Elem().Kind() == reflect.Uint8 {
			return map[string]any{"type": "string", "contentEncoding": "base64"}, nil
		}
		items, err := schemaOf(t.Elem(), outer)
		return map[string]any{"type": "array", "items": items}, err
	case reflect.Map:
		if t.Key().Kind() != reflect.String {
			return nil, fmt.Errorf("%s: the keys of JSON objects are strings", t)
		}
		values, err := schemaOf(t.Elem(), outer)
		return map[string]any{"type": "object", "additionalProperties": values}, err
	case reflect.Struct:
		return structSchema(t, outer)
	case reflect.Invalid, reflect.Uintptr, reflect.Complex64, reflect.Complex128, reflect.Chan, reflect.Func, reflect.UnsafePointer:
	}
	return nil, fmt.Errorf("%s can't be in settings, which are JSON", t)
}

func structSchema(t reflect.Type, outer []reflect.Type) (map[string]any, error) {
	properties, required := map[string]any{}, []string{}
	for _, f := range reflect.VisibleFields(t) {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		embedded := f.Anonymous && name == "" && f.Type.Kind() == reflect.Struct
		if !f.IsExported() || embedded || name == "-" && options == "" {
			continue // the fields of an embedded struct are visible themselves
		}
		if name == "" {
			name = f.Name
		}
		schema, err := schemaOf(f.Type, outer)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		if options == "string" {
			schema = map[string]any{"type": "string"}
		}
		isRequired, err := addTag(schema, f.Tag)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		if isRequired {
			required = append(required, name)
		}
		properties[name] = schema
	}
	schema := map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
	if len(required) != 0 {
		schema["required"] = required
	}
	return schema, nil
}

// addTag adds what the tags of a field say.
func addTag(schema map[string]any, tag reflect.StructTag) (required bool, err error) {
	if doc := tag.Get("doc"); doc != "" {
		schema["description"] = doc
	}
	text, ok := tag.Lookup("schema")
	if !ok {
		return false, nil
	}
	for _, part := range strings.Split(text, ",") {
		key, value, _ := strings.Cut(part, "=")
		switch key {
		case "required":
			required = true
		case "enum":
			schema["enum"] = strings.Split(value, "|")
		case "minimum", "maximum":
			number, err := strconv.ParseFloat(value, 64)
			if err != nil {
				return false, fmt.Errorf("%s=%s: write a number", key, value)
			}
			schema[key] = number
		default:
			return false, fmt.Errorf("the tag schema has the unknown part %q: use required, enum=A|B, minimum=N and maximum=N", part)
		}
	}
	return required, nil
}
