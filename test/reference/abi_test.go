package reference

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
)

const abiPreamble = `# Documents and ABI

The request that a module receives and the verdict that it returns, version ` + "`%s`" + `. The schemas, for editors and other tools, are in
[hostabi/schema](../../hostabi/schema). Modules in [Go](../../sdk/go/README.md) and [Rust](../../sdk/rust/README.md) use an SDK, and need little of this; those in Rego
have the request as ` + "`input`" + `, and rules in package ` + "`gleaner`" + ` whose values are verdicts ([how](../../sdk/rego/README.md)). This page is generated from the
code by ` + "`make generate`" + `.
`

func describeABI(t *testing.T, _ source) string {
	code := parseTree(t, "hostabi")
	var b strings.Builder
	fmt.Fprintf(&b, abiPreamble, hostabi.Version)
	describeHooks(&b, code)
	for _, document := range []string{"request", "verdict"} {
		describeSchema(t, &b, document)
	}
	b.WriteString("\n## Errors of intents\n\nThe `reason` of a result's `error`.\n\n| reason | |\n|---|---|\n")
	for _, c := range code.constsOf("ErrorReason") {
		b.WriteString(row("`"+c.value+"`", plain(sentence(c.comment))))
	}
	b.WriteString("\n## Limits\n\nSizes are bytes of JSON.\n\n| | | |\n|---|---|---|\n")
	for _, l := range []struct {
		name  string
		value int
		what  string
	}{
		{"MaxRequestBytes", hostabi.MaxRequestBytes, "a request, with the results of all rounds"},
		{"MaxVerdictBytes", hostabi.MaxVerdictBytes, "a verdict"},
		{"MaxVerdictDepth", hostabi.MaxVerdictDepth, "nesting depth of objects and arrays in a verdict"},
		{"MaxStateBytes", hostabi.MaxStateBytes, "the state in a verdict"},
		{"MaxReasonBytes", hostabi.MaxReasonBytes, "a reason, and the message of an event"},
		{"MaxIntents", hostabi.MaxIntents, "intents in a verdict"},
		{"MaxDependents", hostabi.MaxDependents, "exceptions by kind in a verdict"},
		{"MaxListLimit", hostabi.MaxListLimit, "objects on a page of a list"},
	} {
		b.WriteString(row("`"+l.name+"`", fmt.Sprint(l.value), l.what))
	}
	fmt.Fprintf(&b, "\nA duration is a string such as `90s` or `1h30m`: decimal numbers, each with h, m, s, ms, us or ns. It is greater than 0 and at most %s.\n"+
		"`MinWait` is %s, and `DefaultWait` %s.\n", hostabi.MaxDuration, hostabi.MinWait, hostabi.DefaultWait)
	b.WriteString("\nFuel, memory and time of a call are set by the module's resource: [engines](../engines.md).\n")
	describeImports(&b, code)
	return b.String()
}

func describeHooks(b *strings.Builder, code source) {
	b.WriteString("\n## Hooks and decisions\n\nAny verdict may have a `reason`.\n\n| hook | decision | other fields |\n|---|---|---|\n")
	for _, hook := range hostabi.Hooks() {
		for _, decision := range hostabi.Decisions(hook) {
			b.WriteString(row("`"+string(hook)+"`", "`"+string(decision)+"`", codes(hostabi.Fields(hook, decision))))
		}
	}
	b.WriteString("\n")
	for _, c := range code.constsOf("Hook") {
		_, text, _ := strings.Cut(c.comment, " ")
		b.WriteString("- `" + c.value + "` " + plain(strings.Join(strings.Fields(text), " ")) + "\n")
	}
}

func describeImports(b *strings.Builder, code source) {
	fmt.Fprintf(b, "\n## WebAssembly\n\nA module exports a function of type `() → ()` for each hook that it implements, with the name of the hook. It may export `_initialize`, which is\n"+
		"called once, without a request: each call begins in the state after it. It may import the functions below from `%s`, and WASI preview 1 without files, environment, arguments or sockets; a module\n"+
		"with other imports is refused when it is loaded. About the sandbox: [engines](../engines.md).\n\n| import | |\n|---|---|\n", hostabi.ImportModule)
	for _, name := range []string{"ImportRequestRead", "ImportVerdictWrite", "ImportLog"} {
		c := code.consts["hostabi."+name]
		_, text, _ := strings.Cut(c.comment, " ")
		b.WriteString(row("`"+c.value+"`", plain(text)))
	}
	fmt.Fprintf(b, "\nA call that traps, or that ends without a verdict, is a fault: the object is kept, unless the policy's `onFault` says otherwise. What the module logged\n"+
		"before is shown.\n\nTwo exports of the same type, `%s` and `%s`, are never called. A module with one reads only the metadata of objects, or only what\n"+
		"identifies them, whatever `needs` is in a policy. The custom section `%s` has the JSON Schema of the settings;\n"+
		"`gleaner module build` adds it.\n", hostabi.ExportNeedsMetadata, hostabi.ExportNeedsReference, hostabi.SettingsSection)
	fmt.Fprintf(b, "\nLog levels: %d debug, %d info, %d warn, %d error.\n", hostabi.LogDebug, hostabi.LogInfo, hostabi.LogWarn, hostabi.LogError)
}

// constsOf returns the constants of a type, in the order of their declaration.
func (s *source) constsOf(typeName string) []constant {
	var list []constant
	s.visitNodes(func(f file, n ast.Node) {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return
		}
		if id, ok := spec.Type.(*ast.Ident); !ok || id.Name != typeName {
			return
		}
		for _, name := range spec.Names {
			if c, ok := s.consts[f.pkg+"."+name.Name]; ok {
				list = append(list, c)
			}
		}
	})
	return list
}

// property is the schema of a document or a field.
type property struct {
	Ref         string              `json:"$ref"`
	Type        any                 `json:"type"`
	Format      string              `json:"format"`
	Description string              `json:"description"`
	Enum        []any               `json:"enum"`
	Items       *property           `json:"items"`
	Required    []string            `json:"required"`
	Properties  map[string]property `json:"properties"`
	Defs        map[string]property `json:"$defs"`
	Order       []string            `json:"-"`
}

// UnmarshalJSON preserves the order of the properties.
func (p *property) UnmarshalJSON(data []byte) error {
	if len(data) != 0 && data[0] != '{' { // true: anything
		return nil
	}
	type alias property
	if err := json.Unmarshal(data, (*alias)(p)); err != nil {
		return err
	}
	var raw struct {
		Properties json.RawMessage `json:"properties"`
	}
	if err := json.Unmarshal(data, &raw); err != nil || raw.Properties == nil {
		return err
	}
	d := json.NewDecoder(strings.NewReader(string(raw.Properties)))
	if _, err := d.Token(); err != nil {
		return err
	}
	for d.More() {
		key, err := d.Token()
		if err != nil {
			return err
		}
		p.Order = append(p.Order, key.(string))
		var skipped json.RawMessage
		if err := d.Decode(&skipped); err != nil {
			return err
		}
	}
	return nil
}

func describeSchema(t *testing.T, b *strings.Builder, document string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root, "hostabi/schema", document+".schema.json"))
	if err != nil {
		t.Fatal(err)
	}
	var schema property
	if err := json.Unmarshal(data, &schema); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(b, "\n## The %s\n\n", document)
	describeProperties(b, schema)
	names := make([]string, 0, len(schema.Defs))
	for name := range schema.Defs {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		fmt.Fprintf(b, "\n### %s\n\n", name)
		describeProperties(b, schema.Defs[name])
	}
}

func describeProperties(b *strings.Builder, p property) {
	if p.Description != "" {
		b.WriteString(plain(strings.Join(strings.Fields(p.Description), " ")) + "\n\n")
	}
	if p.Items != nil {
		b.WriteString("It is a " + p.kind() + ".\n")
		return
	}
	b.WriteString("| field | type | |\n|---|---|---|\n")
	for _, name := range p.Order {
		f := p.Properties[name]
		kind := f.kind()
		if slices.Contains(p.Required, name) {
			kind += ", required"
		}
		b.WriteString(row("`"+name+"`", kind, plain(sentence(f.Description))))
	}
}

func isList(kind any) bool {
	list, ok := kind.([]any)
	return ok && len(list) > 1
}

func (p property) kind() string {
	if list, ok := p.Type.([]any); ok && len(list) == 1 {
		p.Type = list[0]
	}
	switch {
	case p.Ref != "":
		name := p.Ref[strings.LastIndex(p.Ref, "/")+1:]
		return "[" + name + "](#" + strings.ToLower(name) + ")"
	case p.Items != nil:
		return "list of " + p.Items.kind()
	case len(p.Enum) != 0:
		var list []string
		for _, e := range p.Enum {
			list = append(list, fmt.Sprintf("`%v`", e))
		}
		return strings.Join(list, ", ")
	case p.Type == nil:
		return "anything"
	case isList(p.Type):
		return "any JSON value but null"
	case p.Format != "":
		return fmt.Sprintf("%v (%s)", p.Type, p.Format)
	default:
		return fmt.Sprint(p.Type)
	}
}
