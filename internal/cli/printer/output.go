package printer

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/gleaner-dev/gleaner/operator/escape"
)

// APIVersion is the apiVersion of output documents.
const APIVersion = "gleaner.dev/v1alpha1"

// Document is the type metadata of an output document. Within an APIVersion, fields are only
// added to a kind.
type Document struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// DocumentOf returns the type metadata of a kind.
func DocumentOf(kind string) Document { return Document{APIVersion, kind} }

// Write writes a document as JSON or YAML.
func Write(out io.Writer, format string, document any) error {
	data, err := json.MarshalIndent(document, "", "    ")
	data = []byte(escape.Lines(string(data))) // equivalent in JSON; YAML has no raw control characters
	if err == nil && format == "yaml" {
		data, err = yaml.JSONToYAML(data)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", format, err)
	}
	_, err = fmt.Fprintln(Raw(out), strings.TrimSuffix(string(data), "\n"))
	return err
}

// Color is a text color on a terminal, as an SGR code.
type Color string

// The colors, by meaning.
const (
	Bad     Color = "31" // deleted or failed
	Good    Color = "32" // kept
	Caution Color = "33" // waiting or unknown
	Hint    Color = "36"
	Faint   Color = "2"
	Strong  Color = "1"
)

// Palette colors text. The zero Palette leaves text unchanged.
type Palette struct{ on bool }

// PaletteFor returns the Palette for a writer: colors are used only for terminals behind a
// Writer, unless NO_COLOR or TERM=dumb is set.
func PaletteFor(out io.Writer) Palette {
	w, ok := out.(*Writer)
	return Palette{ok && printers.AllowsColorOutput(w.to)}
}

// Paint colors text.
func (p Palette) Paint(c Color, text string) string {
	if !p.on || text == "" || c == "" {
		return text
	}
	return colorMark + "[" + string(c) + "m" + text + colorMark + "[0m"
}
