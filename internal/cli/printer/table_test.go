package printer

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestTable_OmitsEmptyColumns(t *testing.T) {
	table := Table{Header: []string{"A", "EMPTY", "LAST"}}
	table.Add(Cell{Text: "├─x"}, Cell{}, Cell{Text: "y", Color: Bad})
	table.Add(Cell{Text: "long one"}, Cell{}, Cell{})
	var plain, coloured bytes.Buffer
	if err := errors.Join(table.Write(&plain, Palette{}), table.Write(Guard(&coloured), Palette{on: true})); err != nil {
		t.Fatal(err)
	}
	want := "A          LAST\n├─x        y\nlong one\n"
	if diff := cmp.Diff(want, plain.String()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := strings.NewReplacer("\x1b[31m", "", "\x1b[0m", "").Replace(coloured.String()); got != want || got == coloured.String() {
		t.Errorf("with colours it is\n%s", coloured.String())
	}
}

func TestPaletteFor_ColorsTerminalsOnly(t *testing.T) {
	t.Setenv("TERM", "xterm")
	var out bytes.Buffer
	if PaletteFor(&out).on {
		t.Error("what is no terminal is coloured")
	}
}

func TestWrite_JSONAndYAML(t *testing.T) {
	document := struct {
		Document `json:",inline"`
		N        int `json:"count"`
	}{DocumentOf("Thing"), 1}
	for format, want := range map[string]string{
		"json": "{\n    \"apiVersion\": \"gleaner.dev/v1alpha1\",\n    \"kind\": \"Thing\",\n    \"count\": 1\n}\n",
		"yaml": "apiVersion: gleaner.dev/v1alpha1\ncount: 1\nkind: Thing\n",
	} {
		var out bytes.Buffer
		if err := Write(&out, format, document); err != nil || out.String() != want {
			t.Errorf("%s: %v\n%s", format, err, &out)
		}
	}
}
