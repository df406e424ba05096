// Command schema writes the JSON schemas of requests and verdicts, from the Go
// types of hostabi and their comments. What a schema can't say, such as that an
// id is there once, is left to hostabi's parser.
//
//	schema folder
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"github.com/invopop/jsonschema"

	"github.com/gleaner-dev/gleaner/hostabi"
)

const (
	source = "../hostabi" // from the folder of the module
	module = "github.com/gleaner-dev/gleaner/tools"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: schema folder")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "schema:", err)
		os.Exit(1)
	}
}

func run(folder string) error {
	enums, err := readEnums(source)
	if err != nil {
		return fmt.Errorf("read constants: %w", err)
	}
	for name, document := range map[string]any{
		"request": hostabi.Request{},
		"verdict": hostabi.Verdict{},
	} {
		schema, err := generate(document, enums)
		if err != nil {
			return fmt.Errorf("generate %s: %w", name, err)
		}
		schema.ID = jsonschema.ID("https://gleaner.dev/schema/" + hostabi.Version + "/" + name)
		if err := write(filepath.Join(folder, name+".schema.json"), schema); err != nil {
			return err
		}
	}
	return nil
}

// generate makes the schema of one document.
func generate(document any, enums map[string][]any) (*jsonschema.Schema, error) {
	r := jsonschema.Reflector{
		ExpandedStruct: true,
		Anonymous:      true,
		Mapper:         mapper(enums),
	}
	if err := r.AddGoComments(module, source, jsonschema.WithFullComment()); err != nil {
		return nil, err
	}
	schema := r.Reflect(document)
	types := map[string]*jsonschema.Schema{reflect.TypeOf(document).Name(): schema}
	for name, definition := range schema.Definitions {
		types[name] = definition
	}
	if err := constrain(types); err != nil {
		return nil, err
	}
	return schema, nil
}

// mapper gives the schemas of types whose JSON is not that of their Go form.
func mapper(enums map[string][]any) func(reflect.Type) *jsonschema.Schema {
	return func(t reflect.Type) *jsonschema.Schema {
		switch t {
		case reflect.TypeFor[json.RawMessage]():
			return &jsonschema.Schema{}
		case reflect.TypeFor[time.Time]():
			return &jsonschema.Schema{Type: "string", Format: "date-time"}
		case reflect.TypeFor[hostabi.Duration]():
			return &jsonschema.Schema{Type: "string", Pattern: duration}
		case reflect.TypeFor[hostabi.Object]():
			return object("A Kubernetes object, as far as it is known; {} for none.")
		}
		if values, ok := enums[t.Name()]; ok && t.Kind() == reflect.String {
			return &jsonschema.Schema{Type: "string", Enum: values}
		}
		return nil
	}
}

func write(name string, schema *jsonschema.Schema) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(schema); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	if err := os.WriteFile(name, b.Bytes(), 0o644); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}
