package page

import (
	"bytes"
	"encoding/json"
	"net/url"
	"slices"
	"time"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/internal/cli/explain"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// MaxRecords is the maximum number of decisions on a page: the newest ones.
const MaxRecords = 500

// Object is the content of the page about one object.
type Object struct {
	explain.Explanation
	Failed string // why there is nothing to show
}

func (Object) template() string { return "object" }

// Decisions returns its decisions, the newest first.
func (o Object) Decisions() []Decision { return decisionsOf(o.Records) }

// OwnerURL returns the address of the page about an owner.
func (Object) OwnerURL(o record.Owner) string { return ObjectURL(o.Object) }

// BlockerURL returns the address of the page about what it waits for.
func (Object) BlockerURL(b record.Blocker) string { return ObjectURL(b.Object) }

// GraphURL returns the address of the graph around it.
func (o Object) GraphURL() string {
	return GraphQuery{Namespace: o.Explanation.Object.Namespace, Target: o.Explanation.Object.Kind + "/" + o.Explanation.Object.Name}.URL()
}

// Decision is a decision record.
type Decision struct {
	record.Entry
	Would []record.Evaluation // of policies in Monitor mode that would have decided something else
}

// Sentence returns the decision as one sentence.
func (d Decision) Sentence() string { return d.String() }

// Label returns what was done, in a word or two.
func (d Decision) Label() string {
	switch {
	case d.Action != record.None:
		return string(d.Action)
	case d.Reason == decide.CascadeCompleted, d.Reason == decide.CascadeStalled:
		return "Cascade"
	case d.Reason == decide.DeletedByCollector:
		return "Left to the built-in collector"
	default:
		return "Kept"
	}
}

// URL returns the address of the page about the object.
func (d Decision) URL() string { return ObjectURL(d.Object) }

// LinkURL returns the address of the page about an owner in the chain.
func (d Decision) LinkURL(l record.Link) string { return ObjectURL(l.Owner.Object) }

func decisionsOf(entries []record.Entry) (all []Decision) {
	for _, e := range slices.Backward(entries) {
		if len(all) == MaxRecords {
			break
		}
		all = append(all, Decision{Entry: e, Would: e.Would()})
	}
	return all
}

// HasModule reports whether a module was evaluated for the decision, so that it makes a test case.
func (d Decision) HasModule() bool {
	return slices.ContainsFunc(d.Evaluations, func(a record.Evaluation) bool { return a.Module != "" && a.Rounds > 0 })
}

// TestURL returns the address of the decision as a test case.
func (d Decision) TestURL() string { return "/decisions/test?" + d.values().Encode() }

// ReplayURL returns the address of the form to replay the decision with another module.
func (d Decision) ReplayURL() string { return "/decisions/replay?" + d.values().Encode() }

func (d Decision) values() url.Values {
	return url.Values{"uid": {string(d.Object.UID)}, "time": {d.Time.UTC().Format(time.RFC3339Nano)}}
}

// Replay is the content of the page that replays a decision with another module.
type Replay struct {
	UID, Time string // of the decision
	Module    string // the name of its file; empty: none was sent
	Result    string // as gleaner replay prints it
	Failed    string // why there is no result
	Available bool
	Exchanges []Exchange
}

func (Replay) template() string { return "replay" }

// Exchange is what one evaluation of a module got and returned in a round, as JSON.
type Exchange struct {
	Policy           string
	Round            int
	Request, Verdict string
	Fault            string
	Fuel             int64
}

// ExchangesOf returns the exchanges of a decision, as far as they were kept.
func ExchangesOf(e record.Entry) (all []Exchange) {
	for _, a := range e.Evaluations {
		for i, x := range a.Exchanges {
			shown := Exchange{Policy: a.Policy, Round: i + 1, Fault: x.Fault, Fuel: x.Fuel}
			if text, err := hostabi.MarshalRequest(x.Request); err == nil {
				shown.Request = indented(text)
			}
			if text, err := hostabi.MarshalVerdict(x.Verdict); err == nil && x.Fault == "" {
				shown.Verdict = indented(text)
			}
			all = append(all, shown)
		}
	}
	return all
}

func indented(document []byte) string {
	var b bytes.Buffer
	if json.Indent(&b, document, "", "  ") != nil {
		return string(document)
	}
	return b.String()
}

// Command returns the command that does the same.
func (r Replay) Command() string { return "gleaner replay --uid " + r.UID + " --module FILE" }
