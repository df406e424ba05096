package hostabi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
)

// VerdictError reports an invalid verdict. It is a fault of the module.
type VerdictError struct {
	Path    string // path in the document, such as intents[0].delete.uid; empty for the whole document
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

// ParseVerdict parses a verdict for a hook: one JSON object in UTF-8, within the
// limits, whose fields are known, spelled exactly, not duplicated, and allowed with
// the decision. The error is a *VerdictError; the verdict is then the zero Verdict,
// which allows nothing.
//
// Durations and embedded documents are normalized, so that parsing, encoding and
// parsing again gives the same verdict.
func ParseVerdict(hook Hook, data []byte) (Verdict, error) {
	doc, verr := scan(data)
	if verr != nil {
		return Verdict{}, verr
	}
	p := &parser{}
	v := p.verdict(hook, doc)
	if p.err != nil {
		return Verdict{}, p.err
	}
	return v, nil
}

// parser keeps the first error.
type parser struct{ err *VerdictError }

func (p *parser) fail(at *path, format string, args ...any) {
	if p.err == nil {
		p.err = errorAt(at, format, args...)
	}
}

var verdictFields = []string{
	"decision", "propagation", "gracePeriodSeconds", "inheritGracePeriod", "delay", "after", "dependents", "order", "intents", "state", "reason",
}

func (p *parser) verdict(hook Hook, doc value) Verdict {
	o := p.object(nil, doc, verdictFields...)
	v := Verdict{Decision: p.decision(hook, o)}
	p.checkAllowed(hook, v.Decision, o)
	v.Propagation = Propagation(o.oneOf("propagation", propagations...))
	v.GracePeriodSeconds = o.gracePeriod()
	v.InheritGracePeriod = o.boolean("inheritGracePeriod")
	v.Delay = o.duration("delay")
	v.After = o.duration("after")
	v.Dependents = p.dependents(o)
	v.Order = p.order(o)
	p.checkOrder(o.at, v)
	v.Intents = p.intents(hook, o)
	v.State = p.state(o)
	v.Reason = o.text("reason")
	o.checkMaxBytes("reason", MaxReasonBytes)
	if v.Decision == DecisionAct && len(v.Intents) == 0 {
		p.fail(nil, "decides Act without intents: write at least one intent")
	}
	return v
}

// decision returns the decision, which determines the other fields.
func (p *parser) decision(hook Hook, o object) Decision {
	known := Decisions(hook)
	if known == nil {
		p.fail(nil, "is for the unknown hook %s: the hooks are %s", quote(string(hook)), orList(Hooks()))
		return ""
	}
	if _, ok := o.get("decision"); !ok {
		p.fail(nil, "has no decision: write one of %s", orList(known))
		return ""
	}
	return Decision(o.oneOf("decision", toStrings(known)...))
}

// checkAllowed fails for fields that are not allowed with the decision.
func (p *parser) checkAllowed(hook Hook, decision Decision, o object) {
	for _, f := range o.fields {
		if f.name == "decision" || f.name == "reason" {
			continue
		}
		var allowedWith []Decision
		for _, a := range allowedFields[hook] {
			if contains(a.fields, f.name) {
				allowedWith = append(allowedWith, a.decision)
			}
		}
		switch at := o.at.field(f.name); {
		case p.err != nil || contains(allowedWith, decision):
		case len(allowedWith) == 0:
			p.fail(at, "is not allowed for %s: remove it", hook)
		default:
			p.fail(at, "is not allowed with %s: remove it, or decide %s", decision, orList(allowedWith))
		}
	}
}

func (p *parser) dependents(o object) []DependentDecision {
	var list []DependentDecision
	seen := map[[2]string]bool{}
	for i, item := range o.list("dependents", MaxDependents) {
		at := o.at.field("dependents").item(i)
		f := p.object(at, item, "group", "kind", "decision")
		of := f.groupKind()
		d := DependentDecision{Group: of.Group, Kind: of.Kind}
		d.Decision = Decision(f.requiredOneOf("decision", string(DecisionDelete), string(DecisionOrphan)))
		if key := [2]string{d.Group, d.Kind}; seen[key] {
			p.fail(at, "duplicates kind %s of group %q: write each kind once", d.Kind, d.Group)
		} else {
			seen[key] = true
		}
		list = append(list, d)
	}
	return list
}

// groupKind returns the kind in the fields group and kind.
func (o object) groupKind() GroupKind {
	of := GroupKind{Group: o.text("group"), Kind: o.kindName()}
	o.check("group", of.Group == "" || isDNSName(of.Group), "write an API group such as \"apps\", without its version, or remove it for the core group")
	return of
}

// order returns the waves of an order.
func (p *parser) order(o object) []Wave {
	var order []Wave
	for i, wave := range o.list("order", MaxWaves) {
		at := o.at.field("order").item(i)
		var kinds Wave
		for j, kind := range p.items(at, wave, MaxWaveKinds) {
			kinds = append(kinds, p.object(at.item(j), kind, "group", "kind").groupKind())
		}
		order = append(order, kinds)
	}
	return order
}

// checkOrder fails for a kind that is in the order twice, or is kept by an exception.
func (p *parser) checkOrder(at *path, v Verdict) {
	waves := map[GroupKind]int{}
	for i, wave := range v.Order {
		for j, kind := range wave {
			if first, twice := waves[kind]; twice {
				p.fail(at.field("order").item(i).item(j), "is kind %s of group %q, which is in wave %d as well, so that it would have to be deleted before itself: write each kind once", kind.Kind, kind.Group, first+1)
			}
			waves[kind] = i
		}
	}
	for i, d := range v.Dependents {
		if _, ordered := waves[GroupKind{d.Group, d.Kind}]; ordered {
			p.fail(at.field("dependents").item(i), "is kind %s of group %q, which is in the order as well: remove it from one of them", d.Kind, d.Group)
		}
	}
}

func (p *parser) state(o object) json.RawMessage {
	state := o.raw("state")
	if len(state) > MaxStateBytes {
		p.fail(o.at.field("state"), "has %d bytes: write at most %d", len(state), MaxStateBytes)
	}
	return state
}

// compact removes insignificant space from JSON.
func compact(raw []byte) json.RawMessage {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return nil // not reached: raw is valid JSON
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

func toStrings[T ~string](list []T) []string {
	var out []string
	for _, x := range list {
		out = append(out, string(x))
	}
	return out
}

// orList formats a list as "a, b or c".
func orList[T ~string](list []T) string {
	names := toStrings(list)
	if len(names) < 2 {
		return strings.Join(names, "")
	}
	return strings.Join(names[:len(names)-1], ", ") + " or " + names[len(names)-1]
}
