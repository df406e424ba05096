package kubectl

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/operator/escape"
)

// APIVersion is that of the documents that commands write.
const APIVersion = "gleaner.dev/v1alpha1"

// Document is the beginning of each document that a command writes for programs.
// Fields are only ever added to a kind of an APIVersion.
type Document struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// DocumentOf is the beginning of a document of a kind.
func DocumentOf(kind string) Document { return Document{APIVersion, kind} }

// Write writes a document as JSON or YAML, as their encoders do.
func Write(out io.Writer, format string, document any) error {
	data, err := json.MarshalIndent(document, "", "    ")
	data = []byte(escape.Lines(string(data))) // in JSON it means the same, and YAML has no raw control characters
	if err == nil && format == "yaml" {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", format, err)
	}
	_, err = fmt.Fprintln(Raw(out), strings.TrimSuffix(string(data), "\n"))
	return err
}

// Color is how text is shown on a terminal.
type Color string

// The colours that there are, by what they stand for.
const (
	Bad    Color = "31" // it goes, or is lost
	Good   Color = "32" // it stays
	Unsure Color = "33" // it waits, or is not known
	Calm   Color = "36"
	Faint  Color = "2"
	Strong Color = "1"
)

// Palette colours text, or leaves it as it is. The zero Palette leaves it.
type Palette struct{ on bool }

// PaletteFor returns the Palette for what is written to: colours are for terminals
// behind a Writer alone, and not where NO_COLOR or TERM=dumb is set.
func PaletteFor(out io.Writer) Palette {
	w, ok := out.(*Writer)
	return Palette{ok && printers.AllowsColorOutput(w.to)}
}

// Paint colours text.
func (p Palette) Paint(c Color, text string) string {
	if !p.on || text == "" || c == "" {
		return text
	}
	return paint + "[" + string(c) + "m" + text + paint + "[0m"
}
