package test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/printer/printertest"
)

// The text has indented blocks.
func TestHostileReport_IsEscaped(t *testing.T) {
	s := printertest.Filled[Suite]()
	for i := range s.Results {
		s.Results[i].Outcome = Failed
	}
	var out bytes.Buffer
	if err := (&textReporter{to: printer.Guard(&out), verbose: true}).suite(s); err != nil {
		t.Error(err)
	}
	if text := out.String(); !strings.Contains(text, "evil") || strings.Contains(text, "\nFORGED") {
		t.Errorf("forged lines in:\n%s", text)
	}
}
