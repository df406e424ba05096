package differential

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is a type of object in scripts.
type kind struct {
	name       string
	resource   schema.GroupVersionResource
	namespaced bool
}

var (
	configMap   = kind{"ConfigMap", schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, true}
	secret      = kind{"Secret", schema.GroupVersionResource{Version: "v1", Resource: "secrets"}, true}
	clusterRole = kind{"ClusterRole", schema.GroupVersionResource{Group: "rbac.authorization.k8s.io", Version: "v1", Resource: "clusterroles"}, false}
	widget      = kind{"Widget", schema.GroupVersionResource{Group: "differential.gleaner.dev", Version: "v1", Resource: "widgets"}, true}
	cog         = kind{"Cog", schema.GroupVersionResource{Group: "differential.gleaner.dev", Version: "v1", Resource: "cogs"}, false}

	kinds = []kind{configMap, secret, widget, clusterRole, cog}
)

// step is one line of a script. What it does depends on op:
//
//	create OBJECT KIND[@2] [owners=REF,...] [finalizers=NAME,...]
//	own OBJECT [owners=REF,...]
//	finalizers OBJECT [finalizers=NAME,...]
//	delete OBJECT [policy=POLICY]
//
// @2 puts an object into the script's second namespace. A REF is the name of
// an object as last created, with ! if it blocks, and with ?name, ?kind,
// ?uid or ?version if that part of the reference is wrong.
type step struct {
	op         string
	object     string
	kind       kind
	elsewhere  bool
	owners     []reference
	finalizers []string
	policy     string
}

type reference struct {
	object string
	blocks bool
	wrong  string
}

func (r reference) String() string {
	text := r.object
	if r.blocks {
		text += "!"
	}
	if r.wrong != "" {
		text += "?" + r.wrong
	}
	return text
}

// String returns the line of a step.
func (s step) String() string {
	words := []string{s.op, s.object}
	if s.op == "create" {
		name := s.kind.name
		if s.elsewhere {
			name += "@2"
		}
		words = append(words, name)
	}
	if len(s.owners) != 0 {
		var refs []string
		for _, r := range s.owners {
			refs = append(refs, r.String())
		}
		words = append(words, "owners="+strings.Join(refs, ","))
	}
	if len(s.finalizers) != 0 {
		words = append(words, "finalizers="+strings.Join(s.finalizers, ","))
	}
	if s.policy != "" {
		words = append(words, "policy="+s.policy)
	}
	return strings.Join(words, " ")
}

// script is a list of steps.
type script []step

// String returns the script as text, to be parsed again.
func (s script) String() string {
	var b strings.Builder
	for _, step := range s {
		b.WriteString(step.String() + "\n")
	}
	return b.String()
}

// parse reads a script.
func parse(text string) (script, error) {
	var s script
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		st, err := parseStep(words)
		if err != nil {
			return nil, fmt.Errorf("%q: %w", strings.TrimSpace(line), err)
		}
		s = append(s, st)
	}
	return s, nil
}

func parseStep(words []string) (step, error) {
	if len(words) < 2 {
		return step{}, fmt.Errorf("step must have an operation and an object")
	}
	s := step{op: words[0], object: words[1]}
	rest := words[2:]
	switch s.op {
	case "create":
		if len(rest) == 0 {
			return step{}, fmt.Errorf("create needs a kind")
		}
		name, elsewhere := strings.CutSuffix(rest[0], "@2")
		s.elsewhere = elsewhere
		for _, k := range kinds {
			if k.name == name {
				s.kind = k
			}
		}
		if s.kind.name == "" {
			return step{}, fmt.Errorf("unknown kind %s", name)
		}
		rest = rest[1:]
	case "own", "finalizers", "delete":
	default:
		return step{}, fmt.Errorf("unknown operation %s", s.op)
	}
	for _, word := range rest {
		key, value, _ := strings.Cut(word, "=")
		switch key {
		case "owners":
			for _, text := range strings.Split(value, ",") {
				text, wrong, _ := strings.Cut(text, "?")
				object, blocks := strings.CutSuffix(text, "!")
				s.owners = append(s.owners, reference{object: object, blocks: blocks, wrong: wrong})
			}
		case "finalizers":
			s.finalizers = strings.Split(value, ",")
		case "policy":
			s.policy = value
		default:
			return step{}, fmt.Errorf("unknown setting %s", key)
		}
	}
	return s, nil
}
