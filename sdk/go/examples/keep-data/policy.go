package main

import (
	"encoding/json"
	"sort"
	"strings"

	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
)

const claim = "PersistentVolumeClaim"

// settings are what users of the policy may set.
type settings struct {
	Wait   string `json:"wait" doc:"How long a claim is left alone at first, such as 1h30m."`
	Unless string `json:"unless" doc:"Name of a ConfigMap that keeps every claim while it is there."`
}

// memory is what the policy remembers about a claim.
type memory struct {
	Waited string `json:"waited"`
}

// propagate lets claims stay and the rest go.
func propagate(r gleaner.Request) (gleaner.Verdict, error) {
	for _, k := range r.Dependents.ByKind {
		if k.Group == "" && k.Kind == claim {
			return gleaner.Verdict{
				Decision:   gleaner.Background,
				Dependents: []gleaner.DependentDecision{{Kind: claim, Decision: gleaner.Orphan}},
			}, nil
		}
	}
	return gleaner.Verdict{Decision: gleaner.Abstain}, nil
}

// collect decides about claims alone.
func collect(r gleaner.Request) (gleaner.Verdict, error) {
	var s settings
	if err := r.DecodeSettings(&s); err != nil {
		return gleaner.Verdict{}, err
	}
	meta := r.Object.Metadata
	switch {
	case !r.Object.Is("", claim):
		return gleaner.Verdict{Decision: gleaner.Abstain}, nil
	case meta.Labels["keep"] == "true", meta.Annotations["keep"] == "true":
		return gleaner.Verdict{Decision: gleaner.Orphan, Reason: "it has keep=true"}, nil
	}
	if verdict, ok := ask(r, s.Unless); ok {
		return verdict, nil
	}
	if verdict, ok, err := wait(r, s.Wait); ok || err != nil {
		return verdict, err
	}
	if r.Dependents.Count > 0 {
		return gleaner.Verdict{Decision: gleaner.Delete, Propagation: gleaner.PropagationForeground}, nil
	}
	return gleaner.Verdict{Decision: gleaner.Delete}, nil
}

// ask looks for the ConfigMap; false if it is known not to be there.
func ask(r gleaner.Request, name string) (gleaner.Verdict, bool) {
	if name == "" {
		return gleaner.Verdict{}, false
	}
	result, answered := r.Results["hold"]
	switch {
	case !answered:
		target := gleaner.Target{APIVersion: "v1", Kind: "ConfigMap", Namespace: r.Object.Metadata.Namespace, Name: name}
		return gleaner.Verdict{
			Decision: gleaner.Act,
			Intents:  []gleaner.Intent{{ID: "hold", Get: &gleaner.GetIntent{Target: target}}},
		}, true
	case result.Error == nil:
		return gleaner.Verdict{Decision: gleaner.Wait, Reason: "ConfigMap " + name + " is there"}, true
	case result.Error.Reason == gleaner.ErrorNotFound:
		return gleaner.Verdict{}, false
	default: // not known to be absent
		gleaner.Warnf("get ConfigMap %s: %s", name, result.Error.Message)
		return gleaner.Verdict{Decision: gleaner.Wait, Reason: "ConfigMap " + name + " can't be read: " + string(result.Error.Reason)}, true
	}
}

// wait leaves a claim alone once for as long as the settings say.
func wait(r gleaner.Request, setting string) (gleaner.Verdict, bool, error) {
	var m memory
	if _, err := r.DecodeState(&m); err != nil {
		return gleaner.Verdict{}, false, err
	}
	if setting == "" || m.Waited == setting {
		return gleaner.Verdict{}, false, nil
	}
	after, err := gleaner.ParseDuration(setting)
	if err != nil {
		return gleaner.Verdict{}, false, err
	}
	state, err := json.Marshal(memory{Waited: setting})
	return gleaner.Verdict{Decision: gleaner.Wait, After: after, State: state}, true, err
}

// validate refuses settings that collect could do nothing with.
func validate(r gleaner.Request) (gleaner.Verdict, error) {
	set := map[string]json.RawMessage{}
	if err := r.DecodeSettings(&set); err != nil {
		return gleaner.Verdict{}, err
	}
	var names []string
	for name := range set {
		names = append(names, name)
	}
	sort.Strings(names) // or the reason would be another each time
	for _, name := range names {
		if name != "wait" && name != "unless" {
			return gleaner.Verdict{Decision: gleaner.Invalid, Reason: "unknown setting " + name}, nil
		}
	}
	if value, ok := set["wait"]; ok && !isWait(value) {
		return gleaner.Verdict{Decision: gleaner.Invalid, Reason: "wait must be a number with s, m or h, such as 1h"}, nil
	}
	return gleaner.Verdict{Decision: gleaner.Valid}, nil
}

func isWait(value json.RawMessage) bool {
	var s string
	if json.Unmarshal(value, &s) != nil || len(s) < 2 || strings.Trim(s[:len(s)-1], "0123456789") != "" {
		return false
	}
	return strings.HasSuffix(s, "s") || strings.HasSuffix(s, "m") || strings.HasSuffix(s, "h")
}
