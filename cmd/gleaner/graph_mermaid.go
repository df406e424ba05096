package main

import (
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/operator/escape"
)

// writeMermaid writes a flowchart in Mermaid's language, which many sites show in
// Markdown. An edge goes from an owner to what it owns; a thick one blocks.
func writeMermaid(out io.Writer, o *ownership) error {
	var b strings.Builder
	b.WriteString("flowchart LR\n")
	names := map[types.UID]string{}
	for i, object := range o.Objects {
		names[object.UID] = fmt.Sprintf("n%d", i)
		label := mermaidText(object.Kind) + "<br/>" + mermaidText(object.Name)
		class := ""
		switch {
		case object.Missing != "":
			class = ":::missing"
			label += "<br/><i>" + mermaidText(object.state()) + "</i>"
		case object.Terminating != "":
			class = ":::terminating"
			label += "<br/><i>" + mermaidText(object.state()) + "</i>"
		}
		kubectl.Fprintf(&b, "  n%d[\"%s\"]%s\n", i, label, class)
	}
	for _, object := range o.Objects {
		for _, owner := range object.Owners {
			if from, ok := names[owner.UID]; ok {
				kubectl.Fprintf(&b, "  %s %s %s\n", from, map[bool]string{true: "==>", false: "-->"}[owner.Blocks], names[object.UID])
			}
		}
	}
	b.WriteString("  classDef terminating fill:#fff3cd,stroke:#b58900\n")
	b.WriteString("  classDef missing fill:#fff,stroke:#c62828,stroke-dasharray:4 3\n")
	_, err := kubectl.Fprintf(out, "%s", kubectl.Safe(b.String()))
	return err
}

// mermaidText is text as it may stand between quotes: Mermaid knows HTML's
// characters by number. Quotes, tags and Markdown's code are such, and also what
// begins a directive, and what Mermaid takes for a line break.
func mermaidText(text string) string {
	return mermaidEscaper.Replace(escape.Text(text))
}

var mermaidEscaper = strings.NewReplacer(
	"&", "#38;", `"`, "#34;", "<", "#60;", ">", "#62;", "#", "#35;", "`", "#96;",
	"%", "#37;", "{", "#123;", "}", "#125;", `\`, "#92;",
)
