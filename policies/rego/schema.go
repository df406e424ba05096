package rego

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/open-policy-agent/opa/v1/ast"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies/settings"
)

// settingsPath is the path of the schema of the settings in an annotation:
//
//	# METADATA
//	# schemas:
//	#   - input.policy.settings: {type: object, …}
//	package gleaner
//
// See https://www.openpolicyagent.org/docs/policy-language#schemas.
const settingsPath = "input.policy.settings"

// settingsSchema returns the schema of the settings in the annotations of the files; nil if there is none.
func settingsSchema(files []File) ([]byte, error) {
	var found []byte
	for _, f := range sorted(files) {
		if isTest(f.Name) || !strings.Contains(f.Text, settingsPath) || !strings.Contains(f.Text, "# METADATA") {
			continue // most files have no annotations, or others
		}
		module, err := ast.ParseModuleWithOpts(f.Name, f.Text, ast.ParserOptions{
			Capabilities: language(), RegoVersion: ast.RegoV1, ProcessAnnotation: true,
		})
		if err != nil {
			return nil, explain(err)
		}
		for _, a := range module.Annotations {
			schema, err := annotatedSchema(a)
			if err != nil {
				return nil, err
			}
			if schema != nil && found != nil && !bytes.Equal(found, schema) {
				return nil, errorAt(a.Location, "several schemas for %s: write one", settingsPath)
			}
			if schema != nil {
				found = schema
			}
		}
	}
	return found, nil
}

// annotatedSchema returns the schema of the settings in an annotation; nil if there is none.
func annotatedSchema(a *ast.Annotations) ([]byte, error) {
	for _, s := range a.Schemas {
		if s.Path.String() == settingsPath {
			return inlineSchema(a, s)
		}
	}
	return nil, nil
}

// inlineSchema returns a schema that is written into the annotation.
func inlineSchema(a *ast.Annotations, s *ast.SchemaAnnotation) ([]byte, error) {
	if s.Definition == nil {
		return nil, errorAt(a.Location, "the schema for %s is a reference to a file, which does not exist in a cluster: write the schema itself", settingsPath)
	}
	data, err := json.Marshal(*s.Definition)
	if err != nil {
		return nil, errorAt(a.Location, "the schema for %s is invalid: %v", settingsPath, err)
	}
	if _, err := settings.Parse(data); err != nil {
		return nil, errorAt(a.Location, "%v", err)
	}
	return data, nil
}

// addValidate adds a rule for the hook validate, unless the modules have one: the schema is checked before.
func addValidate(modules map[string]*ast.Module) error {
	for _, m := range modules {
		for _, rule := range m.Rules {
			if m.Package.Path.String() == "data."+packageName && rule.Head.Ref().String() == string(hostabi.HookValidate) {
				return nil
			}
		}
	}
	const name = "gleaner settings"
	text := fmt.Sprintf("package %s\n\n%s := {\"decision\": %q}\n", packageName, hostabi.HookValidate, hostabi.DecisionValid)
	module, err := ast.ParseModuleWithOpts(name, text, ast.ParserOptions{Capabilities: language(), RegoVersion: ast.RegoV1})
	if err != nil {
		return fmt.Errorf("add rule %s: %w", hostabi.HookValidate, err)
	}
	modules[name] = module
	return nil
}
