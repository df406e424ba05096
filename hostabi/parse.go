package hostabi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// VerdictError is a verdict that makes no sense. The module that wrote it is to
// blame.
type VerdictError struct {
	Path    string // where in the document: intents[0].delete.uid; empty for all of it
	Message string // what is wrong there, and what to write instead
}

// Error implements error.
func (e *VerdictError) Error() string {
	if e.Path == "" {
		return "the verdict " + e.Message
	}
	return "verdict: " + e.Path + " " + e.Message
}

func errorAt(at *path, format string, args ...any) *VerdictError {
	return &VerdictError{Path: at.String(), Message: fmt.Sprintf(format, args...)}
}

// ParseVerdict reads a verdict in answer to a hook: one JSON object in UTF-8,
// within the limits, in which every field is known, written as it is here, there
// once, and means something with the decision. The error is a *VerdictError, and
// with one the verdict is the zero Verdict, which allows nothing.
//
// Durations and the documents in it come out as this package writes them, so
// that what was parsed, written and parsed again is the same.
func ParseVerdict(hook Hook, data []byte) (Verdict, error) {
	doc, bad := scan(data)
	if bad != nil {
		return Verdict{}, bad
	}
	p := &parser{}
	v := p.verdict(hook, doc)
	if p.err != nil {
		return Verdict{}, p.err
	}
	return v, nil
}

// parser keeps the first error, so that reading goes on as a column of fields.
type parser struct{ err *VerdictError }

func (p *parser) fail(at *path, format string, args ...any) {
	if p.err == nil {
		p.err = errorAt(at, format, args...)
	}
}

var verdictFields = []string{
	"decision", "propagation", "gracePeriodSeconds", "delay", "after", "dependents", "intents", "state", "reason",
}

func (p *parser) verdict(hook Hook, doc value) Verdict {
	o := p.object(nil, doc, verdictFields...)
	v := Verdict{Decision: p.decision(hook, o)}
	p.placed(hook, v.Decision, o)
	v.Propagation = Propagation(o.oneOf("propagation", propagations...))
	v.GracePeriodSeconds = o.gracePeriod()
	v.Delay = o.duration("delay")
	v.After = o.duration("after")
	v.Dependents = p.dependents(o)
	v.Intents = p.intents(hook, o)
	v.State = p.state(o)
	v.Reason = o.text("reason")
	o.longest("reason", MaxReasonBytes)
	if v.Decision == DecisionAct && len(v.Intents) == 0 {
		p.fail(nil, "is Act without intents: write at least one into intents")
	}
	return v
}

// decision reads what was decided, which says what else may be there.
func (p *parser) decision(hook Hook, o object) Decision {
	known := Decisions(hook)
	if known == nil {
		p.fail(nil, "answers the hook %s, which there is not: the hooks are %s", quote(string(hook)), orList(Hooks()))
		return ""
	}
	if _, ok := o.get("decision"); !ok {
		p.fail(nil, "has no decision: write one of %s", orList(known))
		return ""
	}
	return Decision(o.oneOf("decision", texts(known)...))
}

// placed refuses the fields that mean nothing with the decision.
func (p *parser) placed(hook Hook, decision Decision, o object) {
	for _, f := range o.fields {
		if f.name == "decision" || f.name == "reason" {
			continue
		}
		var with []Decision
		for _, a := range answers[hook] {
			if contains(a.fields, f.name) {
				with = append(with, a.decision)
			}
		}
		switch at := o.at.field(f.name); {
		case p.err != nil || contains(with, decision):
		case len(with) == 0:
			p.fail(at, "means nothing in answer to %s: leave it out", hook)
		default:
			p.fail(at, "means nothing with %s: leave it out, or decide %s", decision, orList(with))
		}
	}
}

func (p *parser) dependents(o object) []DependentDecision {
	var list []DependentDecision
	seen := map[[2]string]bool{}
	for i, item := range o.list("dependents", MaxDependents) {
		at := o.at.field("dependents").item(i)
		f := p.object(at, item, "group", "kind", "decision")
		d := DependentDecision{Group: f.text("group"), Kind: f.kindName()}
		f.check("group", d.Group == "" || isDNSName(d.Group), "write an API group such as \"apps\", without its version, or none for the core group")
		d.Decision = Decision(f.needOneOf("decision", string(DecisionDelete), string(DecisionOrphan)))
		if key := [2]string{d.Group, d.Kind}; seen[key] {
			p.fail(at, "is the second for kind %s of group %q: write each kind once", d.Kind, d.Group)
		} else {
			seen[key] = true
		}
		list = append(list, d)
	}
	return list
}

func (p *parser) state(o object) json.RawMessage {
	state := o.raw("state")
	if len(state) > MaxStateBytes {
		p.fail(o.at.field("state"), "has %d bytes: write at most %d", len(state), MaxStateBytes)
	}
	return state
}

// compact writes JSON without the space that means nothing.
func compact(raw []byte) json.RawMessage {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return nil // what was scanned is JSON
	}
	return b.Bytes()
}

func contains[T comparable](list []T, item T) bool {
	for _, x := range list {
		if x == item {
			return true
		}
	}
	return false
}

func texts[T ~string](list []T) []string {
	var out []string
	for _, x := range list {
		out = append(out, string(x))
	}
	return out
}

// orList writes a, b or c.
func orList[T ~string](list []T) string {
	names := texts(list)
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}
