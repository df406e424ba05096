package main

import (
	"io"
	"testing"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/doctor"
)

func TestDoctor_ExitsWith0OnlyIfTheOperatorCouldBeLookedFor(t *testing.T) {
	for claim, c := range map[string]struct {
		report doctor.Report
		want   int
	}{
		"all is well":                            {doctor.Report{}, 0},
		"there are warnings":                     {doctor.Report{Warnings: 1, Unknown: 1}, 0},
		"there is a problem":                     {doctor.Report{Problems: 1}, 1},
		"the operator is unknown":                {doctor.Report{Unknown: 1, Blind: true}, 3},
		"the operator is unknown, and a problem": {doctor.Report{Problems: 1, Blind: true}, 1},
	} {
		if got := tell(io.Discard, "gleaner", doctorExit(c.report)); got != c.want {
			t.Errorf("%s: exits with %d, want %d", claim, got, c.want)
		}
	}
}
