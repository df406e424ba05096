package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/invopop/jsonschema"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// Patterns of texts, as the parser in hostabi has them.
const (
	duration   = `^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h)(([0-9]+(\.[0-9]*)?|\.[0-9]+)(ns|us|µs|μs|ms|s|m|h))*$`
	id         = `^[A-Za-z0-9._-]{1,63}$`
	word       = `^[A-Za-z0-9]{1,63}$`
	apiVersion = `^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	group      = `^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$`
	name       = `^([^/%.]|[^/%]{3,253}|\.[^/%.]|[^/%.][^/%])$`
	link       = `^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@\\ ][^#@\\ ]*$|^[Hh][Tt][Tt][Pp][Ss]?://[^/?#@\\ ]+[/?][^#\\ ]*$`
)

// constraint says what a field may hold beyond its Go type.
type constraint func(*jsonschema.Schema)

func pattern(expression string) constraint {
	return func(s *jsonschema.Schema) { s.Pattern = expression }
}

func between(least, most int64) constraint {
	return func(s *jsonschema.Schema) { s.Minimum, s.Maximum = number(least), number(most) }
}

func length(least, most uint64) constraint {
	return func(s *jsonschema.Schema) { s.MinLength, s.MaxLength = atLeast(least), &most }
}

func items(most uint64) constraint {
	return func(s *jsonschema.Schema) { s.MinItems, s.MaxItems = atLeast(1), &most }
}

func kinds(types ...string) constraint {
	return func(s *jsonschema.Schema) { s.Extras = map[string]any{"type": types} }
}

// headers are fields of any name that a header may have, each with one line.
func headers(s *jsonschema.Schema) {
	s.PatternProperties = map[string]*jsonschema.Schema{
		"^[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}$": {Type: "string", Pattern: `^[^\x00-\x08\x0a-\x1f\x7f]*$`},
	}
	s.AdditionalProperties = jsonschema.FalseSchema
}

func enum(values ...any) constraint {
	return func(s *jsonschema.Schema) { s.Enum = values }
}

// unset stands for a limit that a schema need not name.
const unset = 1 << 20

var target = map[string]constraint{
	"apiVersion": pattern(apiVersion), "kind": pattern(word), "namespace": pattern(`^([a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?)?$`), "name": pattern(name),
}

// constraints are by type and field, as JSON names it.
var constraints = map[string]map[string]constraint{
	"Policy": {"settings": kinds("object")},
	"Verdict": {
		"gracePeriodSeconds": between(0, 1<<31-1),
		"dependents":         items(hostabi.MaxDependents),
		"order":              items(hostabi.MaxWaves),
		"intents":            items(hostabi.MaxIntents),
		"state":              kinds("object", "array", "string", "number", "boolean"),
		"reason":             length(0, hostabi.MaxReasonBytes),
	},
	"DependentDecision": {
		"group": pattern(group), "kind": pattern(word), "decision": enum(string(hostabi.DecisionDelete), string(hostabi.DecisionOrphan)),
	},
	"GroupKind": {"group": pattern(group), "kind": pattern(word)},
	"Intent":    {"id": pattern(id)},
	"GetIntent": target,
	"ListIntent": {
		"apiVersion": target["apiVersion"], "kind": target["kind"], "namespace": target["namespace"], "limit": between(1, hostabi.MaxListLimit),
	},
	"CreateIntent": {"object": toCreate},
	"DeleteIntent": with(target, map[string]constraint{"uid": length(1, unset), "gracePeriodSeconds": between(0, 1<<31-1)}),
	"PatchIntent":  with(target, map[string]constraint{"patch": kinds("object", "array")}),
	"HTTPIntent": {
		"method": enum("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"),
		"url":    pattern(link), "headers": headers,
	},
	"EventIntent": {"reason": pattern(id), "message": length(1, hostabi.MaxReasonBytes)},
}

// constrain puts the constraints into the schemas of the types that are there.
func constrain(types map[string]*jsonschema.Schema) error {
	for name, fields := range constraints {
		t, ok := types[name]
		if !ok {
			continue // of the other document
		}
		for field, apply := range fields {
			s, ok := t.Properties.Get(field)
			if !ok {
				return fmt.Errorf("%s has no field %s", name, field)
			}
			apply(s)
		}
	}
	if v, ok := types["Verdict"]; ok {
		v.AllOf = placed()
	}
	if w, ok := types["Wave"]; ok {
		items(hostabi.MaxWaveKinds)(w)
	}
	if i, ok := types["Intent"]; ok {
		exactlyOne(i)
	}
	if p, ok := types["PatchIntent"]; ok {
		p.AnyOf = []*jsonschema.Schema{patchOf("array", hostabi.PatchJSON), patchOf("object", hostabi.PatchMerge, hostabi.PatchApply)}
	}
	return nil
}

// placed says for each field of a verdict with which decisions it goes, in
// answer to whichever hook, and that Act goes with intents.
func placed() []*jsonschema.Schema {
	with := map[string][]string{}
	for _, hook := range hostabi.Hooks() {
		for _, decision := range hostabi.Decisions(hook) {
			for _, field := range hostabi.Fields(hook, decision) {
				if !slices.Contains(with[field], string(decision)) {
					with[field] = append(with[field], string(decision))
				}
			}
		}
	}
	var all []*jsonschema.Schema
	for _, field := range slices.Sorted(maps.Keys(with)) {
		all = append(all, &jsonschema.Schema{
			Description: field + " goes with " + strings.Join(with[field], ", "),
			AnyOf:       []*jsonschema.Schema{{Not: &jsonschema.Schema{Required: []string{field}}}, decides(with[field]...)},
		})
	}
	act := string(hostabi.DecisionAct)
	return append(all, &jsonschema.Schema{
		Description: act + " goes with intents",
		AnyOf:       []*jsonschema.Schema{{Required: []string{"intents"}}, {Not: decides(act)}},
	})
}

func decides(decisions ...string) *jsonschema.Schema {
	return having("decision", &jsonschema.Schema{Enum: values(decisions)})
}

func patchOf(kind string, types ...hostabi.PatchType) *jsonschema.Schema {
	s := having("type", &jsonschema.Schema{Enum: values(types)})
	s.Properties.Set("patch", &jsonschema.Schema{Type: kind})
	return s
}

// having is any object in which a field is as described.
func having(field string, as *jsonschema.Schema) *jsonschema.Schema {
	s := &jsonschema.Schema{Properties: jsonschema.NewProperties()}
	s.Properties.Set(field, as)
	return s
}

// exactlyOne allows one of the fields that are not required.
func exactlyOne(s *jsonschema.Schema) {
	for p := s.Properties.Oldest(); p != nil; p = p.Next() {
		if !slices.Contains(s.Required, p.Key) {
			s.OneOf = append(s.OneOf, &jsonschema.Schema{Required: []string{p.Key}})
		}
	}
}

// toCreate is a Kubernetes object with a name.
func toCreate(s *jsonschema.Schema) {
	*s = *object(s.Description)
	s.Required = []string{"apiVersion", "kind", "metadata"}
	s.Properties = jsonschema.NewProperties()
	for _, field := range []string{"apiVersion", "kind"} {
		s.Properties.Set(field, &jsonschema.Schema{Type: "string"})
		target[field](s.Properties.Value(field))
	}
	metadata := object("")
	metadata.Required = []string{"name"}
	metadata.Properties = jsonschema.NewProperties()
	for _, field := range []string{"name", "namespace"} {
		metadata.Properties.Set(field, &jsonschema.Schema{Type: "string"})
		target[field](metadata.Properties.Value(field))
	}
	s.Properties.Set("metadata", metadata)
}

func object(description string) *jsonschema.Schema {
	return &jsonschema.Schema{Type: "object", Description: description}
}
