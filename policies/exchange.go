package policies

import (
	"errors"

	"github.com/gleaner-dev/gleaner/hostabi"
)

// Exchange is one question that a module was asked, and what came of it. Since
// equal requests get equal answers, it can be repeated wherever the module is.
type Exchange struct {
	Request hostabi.Request `json:"request"`
	Verdict hostabi.Verdict `json:"verdict,omitzero"` // none: see Fault

	// Fault is why there is no verdict. Without a FaultKind the host is to blame,
	// and another time there may be one.
	Fault     string    `json:"fault,omitempty"`
	FaultKind FaultKind `json:"faultKind,omitempty"`

	Fuel int64 `json:"fuel"`
}

// ExchangeOf is the Exchange of one call of an Asker.
func ExchangeOf(request hostabi.Request, answer Answer, err error) Exchange {
	e := Exchange{Request: request, Fuel: answer.Fuel}
	fault := new(Fault)
	switch {
	case err == nil:
		e.Verdict = answer.Verdict
	case errors.As(err, &fault):
		e.Fault, e.FaultKind = fault.Message, fault.Kind
	default:
		e.Fault = err.Error()
	}
	return e
}

// Repeats reports whether the same is bound to come of it again: whether it is
// the module's doing alone, and not that of a clock or of the process that it ran in.
func (e Exchange) Repeats() bool {
	switch e.FaultKind {
	case "":
		return e.Fault == ""
	case FaultTimedOut, FaultCrashed, FaultQuarantined:
		return false
	default:
		return true
	}
}
