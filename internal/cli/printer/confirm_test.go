package printer

import (
	"strings"
	"testing"
)

func TestPrompt_ReportsAMissingAnswer(t *testing.T) {
	const question, otherwise = "Remove 3 objects?", "Nothing was removed."
	for input, want := range map[string]struct {
		yes, fails bool
		out        string
	}{
		"y\n":     {true, false, "Remove 3 objects? [y/N] \n"},
		"YES\n":   {true, false, "Remove 3 objects? [y/N] \n"},
		"y":       {true, false, "Remove 3 objects? [y/N] \n"},
		"n\n":     {false, false, "Remove 3 objects? [y/N] \nNothing was removed.\n"},
		"\n":      {false, false, "Remove 3 objects? [y/N] \nNothing was removed.\n"},
		"maybe\n": {false, false, "Remove 3 objects? [y/N] \nNothing was removed.\n"},
		"":        {false, true, "Remove 3 objects? [y/N] \n"}, // as in a script
	} {
		var out strings.Builder
		yes, err := Prompt{In: strings.NewReader(input), Out: &out}.Confirm(question, otherwise)
		if yes != want.yes || (err != nil) != want.fails || out.String() != want.out {
			t.Errorf("%q: %t, %v, %q", input, yes, err, out.String())
		}
		if err != nil && !strings.Contains(err.Error(), "--yes") {
			t.Errorf("%q: the error does not say what to do: %v", input, err)
		}
		if got := (Prompt{In: strings.NewReader(input), Out: &out}).Confirmed(question); got != want.yes {
			t.Errorf("%q: confirmed: %t", input, got)
		}
	}
	if yes, err := (Prompt{Yes: true}).Confirm(question, otherwise); !yes || err != nil {
		t.Errorf("without asking: %t, %v", yes, err)
	}
}
