package policies

import (
	"errors"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// Exchange is the request of one evaluation and its result. Equal requests have
// equal verdicts, so an exchange can be replayed wherever the module is available.
type Exchange struct {
	Request hostabi.Request `json:"request"`
	Verdict hostabi.Verdict `json:"verdict,omitzero"` // zero if there is a fault

	// Fault says why there is no verdict. With an empty FaultKind it is an error of
	// the host, which may not occur again.
	Fault     string    `json:"fault,omitempty"`
	FaultKind FaultKind `json:"faultKind,omitempty"`

	Fuel int64 `json:"fuel"`
}

// NewExchange returns the Exchange of one call of an Asker.
func NewExchange(request hostabi.Request, evaluation Evaluation, err error) Exchange {
	e := Exchange{Request: request, Fuel: evaluation.Fuel}
	fault := new(Fault)
	switch {
	case err == nil:
		e.Verdict = evaluation.Verdict
	case errors.As(err, &fault):
		e.Fault, e.FaultKind = fault.Message, fault.Kind
	default:
		e.Fault = err.Error()
	}
	return e
}

// Replayable reports whether a replay must have the same result: it depends on the
// module only, not on time or on the state of its process.
func (e Exchange) Replayable() bool {
	switch e.FaultKind {
	case "":
		return e.Fault == ""
	case FaultTimedOut, FaultCrashed, FaultQuarantined:
		return false
	default:
		return true
	}
}
