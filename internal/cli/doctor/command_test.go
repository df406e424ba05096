package doctor

import (
	"errors"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
)

func TestDoctor_ExitCodes(t *testing.T) {
	for claim, c := range map[string]struct {
		report Report
		want   int
	}{
		"all is well":                            {Report{}, 0},
		"there are warnings":                     {Report{Warnings: 1, Unknown: 1}, 0},
		"there is a problem":                     {Report{Problems: 1}, 1},
		"the operator is unknown":                {Report{Unknown: 1, OperatorUnknown: true}, 3},
		"the operator is unknown, and a problem": {Report{Problems: 1, OperatorUnknown: true}, 1},
	} {
		var status exit.Error
		errors.As(exitForReport(c.report), &status)
		if got := status.Code; got != c.want {
			t.Errorf("%s: exits with %d, want %d", claim, got, c.want)
		}
	}
}
