package main

import (
	"fmt"
	"io"
	"strings"

	"k8s.io/apimachinery/pkg/types"
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
		fmt.Fprintf(&b, "  n%d[\"%s\"]%s\n", i, label, class)
	}
	for _, object := range o.Objects {
		for _, owner := range object.Owners {
			if from, ok := names[owner.UID]; ok {
				fmt.Fprintf(&b, "  %s %s %s\n", from, map[bool]string{true: "==>", false: "-->"}[owner.Blocks], names[object.UID])
			}
		}
	}
	b.WriteString("  classDef terminating fill:#fff3cd,stroke:#b58900\n")
	b.WriteString("  classDef missing fill:#fff,stroke:#c62828,stroke-dasharray:4 3\n")
	_, err := io.WriteString(out, b.String())
	return err
}

// mermaidText is text as it may stand between quotes: Mermaid knows HTML's
// characters by number.
func mermaidText(text string) string {
	return strings.NewReplacer("&", "#38;", `"`, "#34;", "<", "#60;", ">", "#62;", "#", "#35;", "`", "#96;").Replace(text)
}
