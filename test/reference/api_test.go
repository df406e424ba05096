package reference

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"

	"github.com/gleaner-dev/gleaner/crds"
)

const apiPreamble = `# Resources

The custom resources of ` + "`gleaner.dev/v1alpha1`" + `, generated from their definitions ([crds/manifests](../../crds/manifests)) by ` + "`make generate`" + `.
Each has a namespaced and a cluster-scoped form with the same fields, except for those of nodes, which are cluster-scoped. How to use them: [policies](../policies.md) and
[finalizers](../finalizers.md). Their status: [conditions](conditions.md). ` + "`kubectl explain`" + ` shows the same.
`

// form is a resource in one scope.
type form struct {
	definition *apiextensionsv1.CustomResourceDefinition
	fields     []field
}

// field is a property of a schema, at a path.
type field struct {
	path, kind, description string
	required                bool
	defaultValue            string   // the default
	enum                    []string // nil: any
	bounds                  string
	refusals                []string
}

func describeAPI(t *testing.T, _ source) string {
	definitions, err := crds.Definitions()
	if err != nil {
		t.Fatal(err)
	}
	forms := map[string]form{}
	for _, d := range definitions {
		forms[d.Spec.Names.Kind] = formOf(d)
	}
	var b strings.Builder
	b.WriteString(apiPreamble)
	for _, kind := range slices.Sorted(maps.Keys(forms)) {
		cluster, isPair := forms["Cluster"+kind]
		if strings.HasPrefix(kind, "Cluster") {
			continue
		}
		if isCluster := forms[kind].definition.Spec.Scope == apiextensionsv1.ClusterScoped; isPair == isCluster {
			t.Fatalf("%s has no cluster-scoped form, or two", kind)
		}
		describeForms(&b, forms[kind], cluster)
	}
	return b.String()
}

func formOf(d *apiextensionsv1.CustomResourceDefinition) form {
	f := form{definition: d}
	schema := d.Spec.Versions[0].Schema.OpenAPIV3Schema
	for _, part := range []string{"spec", "status"} {
		at := schema.Properties[part]
		f.collect(part, at, slices.Contains(schema.Required, part))
	}
	return f
}

// collect adds a field and its nested fields.
func (f *form) collect(path string, s apiextensionsv1.JSONSchemaProps, required bool) {
	one := field{path: path, kind: s.Type, description: s.Description, required: required, bounds: bounds(s)}
	if s.XIntOrString {
		one.kind = "integer or string"
	}
	if s.Format != "" {
		one.kind += " (" + s.Format + ")"
	}
	if s.Default != nil {
		one.defaultValue = string(s.Default.Raw)
	}
	items := s
	if s.Items != nil && s.Items.Schema != nil {
		items = *s.Items.Schema
		one.kind = "list of " + items.Type
		one.refusals = refusals(items)
	}
	for _, e := range items.Enum {
		one.enum = append(one.enum, string(e.Raw))
	}
	one.refusals = append(one.refusals, refusals(s)...)
	f.fields = append(f.fields, one)
	below := path
	if s.Items != nil {
		below += "[]"
	}
	for _, name := range slices.Sorted(maps.Keys(items.Properties)) {
		f.collect(below+"."+name, items.Properties[name], slices.Contains(items.Required, name))
	}
	if a := s.AdditionalProperties; a != nil && a.Schema != nil {
		f.collect(path+".*", *a.Schema, false)
	}
}

func refusals(s apiextensionsv1.JSONSchemaProps) []string {
	var list []string
	for _, v := range s.XValidations {
		at := ""
		if v.FieldPath != "" {
			at = "`" + v.FieldPath + "`: "
		}
		list = append(list, at+plain(v.Message))
	}
	return list
}

// bounds describes the limits in the schema that are useful to readers.
func bounds(s apiextensionsv1.JSONSchemaProps) string {
	var list []string
	add := func(format string, has bool, value any) {
		if has {
			list = append(list, fmt.Sprintf(format, value))
		}
	}
	add("from %v", s.Minimum != nil, deref(s.Minimum))
	add("to %v", s.Maximum != nil, deref(s.Maximum))
	add("at least %v", s.MinItems != nil, deref(s.MinItems))
	add("at most %v", s.MaxItems != nil, deref(s.MaxItems))
	add("at least %v characters", s.MinLength != nil && *s.MinLength > 1, deref(s.MinLength))
	add("at most %v characters", s.MaxLength != nil, deref(s.MaxLength))
	add("`%v`", s.Pattern != "", s.Pattern)
	return strings.Join(list, ", ")
}

func deref[T any](p *T) T {
	var zero T
	if p == nil {
		return zero
	}
	return *p
}

// describeForms describes a resource in one table: fields of one form are marked. A resource without a namespaced form has
// no second one.
func describeForms(b *strings.Builder, one, cluster form) {
	names := one.definition.Spec.Names
	list := []form{one}
	if cluster.definition == nil {
		fmt.Fprintf(b, "\n## %s\n\n", names.Kind)
		cluster = one
	} else {
		fmt.Fprintf(b, "\n## %s and %s\n\n", names.Kind, cluster.definition.Spec.Names.Kind)
		list = append(list, cluster)
	}
	for _, f := range list {
		d := f.definition
		fmt.Fprintf(b, "- `%s`, short %s: %s Columns: %s.\n", d.Spec.Names.Plural, codes(d.Spec.Names.ShortNames),
			plain(strings.Join(strings.Fields(d.Spec.Versions[0].Schema.OpenAPIV3Schema.Description), " ")), columns(d))
	}
	b.WriteString("\n| field | type | default | |\n|---|---|---|---|\n")
	merged := merge(one, cluster)
	for _, m := range merged {
		what := plain(m.description)
		if m.only != "" {
			what = m.only + " only. " + what
		}
		kind := m.kind
		if m.required {
			kind += ", required"
		}
		if m.enum != nil {
			kind = "one of " + codes(m.enum)
		}
		if m.bounds != "" {
			what += " (" + m.bounds + ")"
		}
		b.WriteString(row("`"+m.path+"`", kind, code(m.defaultValue), what))
	}
	b.WriteString("\nValidation messages:\n\n| field | message |\n|---|---|\n")
	for _, m := range merged {
		for _, text := range m.refusals {
			b.WriteString(row("`"+m.path+"`", text))
		}
	}
}

func columns(d *apiextensionsv1.CustomResourceDefinition) string {
	var list []string
	for _, c := range d.Spec.Versions[0].AdditionalPrinterColumns {
		name := c.Name
		if c.Priority > 0 {
			name += " (with `-o wide`)"
		}
		list = append(list, name)
	}
	return strings.Join(list, ", ")
}

// mergedField is a field of both forms, or of one of them.
type mergedField struct {
	field
	only string
}

func merge(one, cluster form) []mergedField {
	other := map[string]field{}
	for _, f := range cluster.fields {
		other[f.path] = f
	}
	var list []mergedField
	for _, f := range one.fields {
		theirs, both := other[f.path]
		delete(other, f.path)
		m := mergedField{field: f}
		if !both {
			m.only = one.definition.Spec.Names.Kind
		} else {
			m.refusals = mergeRefusals(f.refusals, theirs.refusals, one, cluster)
			m.required = f.required && theirs.required
			if f.required != theirs.required {
				m.description += " Required in one of the forms."
			}
		}
		list = append(list, m)
	}
	for _, f := range cluster.fields {
		if _, left := other[f.path]; left {
			list = append(list, mergedField{field: f, only: cluster.definition.Spec.Names.Kind})
		}
	}
	slices.SortStableFunc(list, func(a, b mergedField) int { return strings.Compare(a.path, b.path) })
	return list
}

func mergeRefusals(own, theirs []string, one, cluster form) []string {
	var list []string
	for _, text := range own {
		if !slices.Contains(theirs, text) {
			text = one.definition.Spec.Names.Kind + ": " + text
		}
		list = append(list, text)
	}
	for _, text := range theirs {
		if !slices.Contains(own, text) {
			list = append(list, cluster.definition.Spec.Names.Kind+": "+text)
		}
	}
	return list
}
