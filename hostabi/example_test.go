package hostabi_test

import (
	"errors"
	"fmt"

	"github.com/gleaner-dev/gleaner/hostabi"
)

func ExampleParseVerdict() {
	verdict, err := hostabi.ParseVerdict(hostabi.HookCollect, []byte(`{"decision": "Wait", "after": "90s", "reason": "backup is running"}`))
	fmt.Println(verdict.Decision, verdict.After, verdict.Reason, err)

	// A misspelled field is an error, not an empty field.
	_, err = hostabi.ParseVerdict(hostabi.HookCollect, []byte(`{"decision": "Wait", "After": "90s"}`))
	fmt.Println(errors.As(err, new(*hostabi.VerdictError)), err)
	// Output:
	// Wait 1m30s backup is running <nil>
	// true verdict: After is unknown: write it as after
}
