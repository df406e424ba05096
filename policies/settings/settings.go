// Package settings checks the settings of policies and finalizers against the JSON Schema that their module
// carries. The schema and the settings are untrusted: the package is used in worker processes, which limit its time and
// memory.
//
// See https://json-schema.org/draft/2020-12.
package settings

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/gleaner-dev/gleaner/hostabi"
)

const (
	// MaxSchema is the maximum size of a schema, in bytes.
	MaxSchema = 64 << 10

	// maxProblems is the maximum number of problems that are reported.
	maxProblems = 5
)

// location is the URL of the schema. Nothing is loaded from there. A relative one would be resolved by the working
// directory, which worker processes may not read.
const location = "urn:gleaner:settings"

// Schema is a compiled schema. A nil Schema allows all settings.
type Schema struct {
	compiled *jsonschema.Schema
	document any // as it was parsed
	text     []byte
}

// JSON returns the schema as it was parsed.
func (s *Schema) JSON() []byte { return s.text }

// noLoader refuses references to other documents.
type noLoader struct{}

// Load implements jsonschema.URLLoader.
func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("it refers to %s: put all definitions into the schema itself", url)
}

// Parse compiles a schema. The error says what is wrong with it.
func Parse(data []byte) (schema *Schema, err error) {
	defer func() {
		if p := recover(); p != nil {
			schema, err = nil, fmt.Errorf("the schema of the settings can't be used: %v", p)
		}
	}()
	if len(data) > MaxSchema {
		return nil, fmt.Errorf("the schema of the settings has %d bytes, at most %d are allowed", len(data), MaxSchema)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, fmt.Errorf("the schema of the settings is not JSON: %w", err)
	}
	if _, ok := document.(map[string]any); !ok {
		return nil, errors.New("the schema of the settings is not an object")
	}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(noLoader{})
	c.AssertFormat()
	if err := c.AddResource(location, document); err != nil {
		return nil, fmt.Errorf("the schema of the settings is invalid: %w", err)
	}
	compiled, err := c.Compile(location)
	if invalid := (*jsonschema.SchemaValidationError)(nil); errors.As(err, &invalid) {
		return nil, fmt.Errorf("the schema of the settings is invalid: %s", problems(invalid.Err, "schema", nil))
	}
	if err != nil {
		return nil, fmt.Errorf("the schema of the settings is invalid: %w", err)
	}
	return &Schema{compiled, document, data}, nil
}

// Of returns the schema that a WebAssembly module carries; nil if it carries none.
func Of(module []byte) (*Schema, error) {
	data, err := Extract(module)
	if err != nil || data == nil {
		return nil, err
	}
	return Parse(data)
}

// Answer returns the verdict of the hook validate for a request document, if the schema decides: the settings are
// invalid, or the module has no hook validate of its own. Otherwise it is nil.
func (s *Schema) Answer(request []byte, hasHook bool) (verdict []byte, err error) {
	problems, err := s.ProblemsOfRequest(request)
	switch {
	case err != nil || s == nil:
		return nil, err
	case problems != "":
		return json.Marshal(answer{hostabi.DecisionInvalid, shorten(problems, hostabi.MaxReasonBytes)})
	case !hasHook:
		return json.Marshal(answer{Decision: hostabi.DecisionValid})
	}
	return nil, nil
}

// shorten shortens a text to a number of bytes.
func shorten(text string, most int) string {
	const mark = "…"
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len(mark)], "") + mark
}

type answer struct {
	Decision hostabi.Decision `json:"decision"`
	Reason   string           `json:"reason,omitempty"`
}

// Problems returns what is wrong with settings, which are JSON; "" if nothing is. No settings are an empty object.
func (s *Schema) Problems(settings []byte) (problem string) {
	if s == nil {
		return ""
	}
	defer func() {
		if p := recover(); p != nil { // such as by a number in the schema whose exponent is too large
			problem = fmt.Sprintf("settings can't be checked by the schema: %v", p)
		}
	}()
	if len(settings) == 0 {
		settings = []byte("{}")
	}
	value, err := jsonschema.UnmarshalJSON(bytes.NewReader(settings))
	if err != nil {
		return "settings are not JSON: " + err.Error()
	}
	return problems(s.compiled.Validate(value), "settings", s.document)
}

// ProblemsOfRequest returns what is wrong with the settings in a request document.
func (s *Schema) ProblemsOfRequest(request []byte) (string, error) {
	if s == nil {
		return "", nil
	}
	var r struct {
		Policy struct {
			Settings json.RawMessage `json:"settings"`
		} `json:"policy"`
	}
	if err := json.Unmarshal(request, &r); err != nil {
		return "", fmt.Errorf("read settings: %w", err)
	}
	return s.Problems(r.Policy.Settings), nil
}

// problems describes the first problems that a validation by a schema found. The schema, nil if it is unknown, says what to write instead.
func problems(err error, root string, schema any) string {
	invalid := (*jsonschema.ValidationError)(nil)
	switch {
	case err == nil:
		return ""
	case !errors.As(err, &invalid):
		return err.Error()
	}
	var all []string
	collect(invalid, root, schema, &all)
	slices.Sort(all)
	all = slices.Compact(all)
	if more := len(all) - maxProblems; more > 0 {
		all = append(all[:maxProblems], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(all, "; ")
}

// collect collects the problems without a cause that is more precise.
func collect(e *jsonschema.ValidationError, root string, schema any, all *[]string) {
	if len(e.Causes) != 0 {
		for _, cause := range e.Causes {
			collect(cause, root, schema, all)
		}
		return
	}
	path, about := pathOf(root, e.InstanceLocation), describe(schema, e.SchemaURL)
	switch of := e.ErrorKind.(type) {
	case *kind.FalseSchema:
		if len(e.InstanceLocation) != 0 {
			*all = append(*all, path+": not allowed")
			return
		}
	case *kind.AdditionalProperties:
		if len(about.fields) != 0 {
			known := shorten(strings.Join(about.fields, ", "), maxDescription)
			for _, name := range of.Properties[:min(len(of.Properties), maxProblems)] {
				*all = append(*all, fmt.Sprintf("unknown setting %s: use %s", shorten(strings.Join(append(slices.Clone(e.InstanceLocation), name), "."), maxDescription), known))
			}
			if more := len(of.Properties) - maxProblems; more > 0 {
				*all = append(*all, fmt.Sprintf("%s: %d more unknown settings", path, more))
			}
			return
		}
	}
	problem := path + ": " + e.ErrorKind.LocalizedString(message.NewPrinter(language.AmericanEnglish))
	if about.description != "" {
		problem += " (" + about.description + ")"
	}
	*all = append(*all, problem)
}

func pathOf(root string, location []string) string {
	return strings.Join(append([]string{root}, location...), ".")
}
