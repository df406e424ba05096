package writer

import (
	"context"

	"github.com/gleaner-dev/gleaner/operator/gate"
)

// Requirement is what a component needs of the gate to write. The zero Requirement is
// never met.
type Requirement string

// The requirements.
const (
	OpenGate   Requirement = "OpenGate"   // of the collector: no other one is running
	Leadership Requirement = "Leadership" // of finalizers: this replica leads, and can rely on its lease
)

// GateStep admits writes while the gate meets a requirement. It is the last step, so that
// the gate is asked immediately before each call.
type GateStep struct {
	Gate  *gate.Gate
	Needs Requirement
}

// Admit implements Step.
func (s GateStep) Admit(context.Context, Write) (Admission, error) {
	met := false
	switch s.Needs {
	case OpenGate:
		met = s.Gate.IsOpen()
	case Leadership:
		met = s.Gate.IsLeading()
	default:
		return Admission{}, nil
	}
	if !met {
		return Admission{Outcome: Wait, Reason: "this replica may not write now"}, nil
	}
	return Admission{Outcome: Pass}, nil
}

// Settle implements Step.
func (GateStep) Settle(context.Context, Write, Settlement) {}
