package graph

import (
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/cli/ownership"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/escape"
)

// writeMermaid writes a Mermaid flowchart, which many sites render in Markdown. Edges go
// from owners to dependents; thick edges block the owner's deletion.
func writeMermaid(out io.Writer, o *ownership.Ownership) error {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	names := map[types.UID]string{}
	for i, object := range o.Objects {
		names[object.UID] = fmt.Sprintf("n%d", i)
		label := mermaidText(object.Kind) + "<br/>" + mermaidText(object.Name)
		if others := object.Others(); others != "" {
			label += "<br/>" + others
		}
		class := ""
		switch {
		case object.Missing != "":
			class = ":::missing"
			label += "<br/><i>" + mermaidText(object.State()) + "</i>"
		case object.Terminating != "":
			class = ":::terminating"
			label += "<br/><i>" + mermaidText(object.State()) + "</i>"
		}
		printer.Fprintf(&b, "  n%d[\"%s\"]%s\n", i, label, class)
	}
	for _, object := range o.Objects {
		for _, owner := range object.Owners {
			if from, ok := names[owner.UID]; ok {
				printer.Fprintf(&b, "  %s %s %s\n", from, map[bool]string{true: "==>", false: "-->"}[owner.Blocks], names[object.UID])
			}
		}
	}
	b.WriteString("  classDef terminating fill:#fff3cd,stroke:#b58900\n")
	b.WriteString("  classDef missing fill:#fff,stroke:#c62828,stroke-dasharray:4 3\n")
	_, err := printer.Fprintf(out, "%s", printer.Safe(b.String()))
	return err
}

// mermaidText escapes text for use in quotes, with numeric HTML entities: quotes, tags,
// Markdown code, and the characters that begin directives or line breaks in Mermaid.
func mermaidText(text string) string {
	return mermaidEscaper.Replace(escape.Text(text))
}

var mermaidEscaper = strings.NewReplacer(
	"&", "#38;", `"`, "#34;", "<", "#60;", ">", "#62;", "#", "#35;", "`", "#96;",
	"%", "#37;", "{", "#123;", "}", "#125;", `\`, "#92;",
)
