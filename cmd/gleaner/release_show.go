package main

import (
	"bufio"
	"io"
	"strings"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/operator/release"
)

func show(out io.Writer, held []release.Held) {
	t := kubectl.Table{Header: []string{"NAMESPACE", "OBJECT", "STATE", "TAKEN OFF", "OTHER FINALIZERS"}}
	for _, h := range held {
		state, color := "held", kubectl.Color("")
		if h.Terminating {
			state, color = "being deleted: goes once it is released", kubectl.Bad
			if len(h.Others) != 0 {
				state, color = "being deleted: waits for others, too", kubectl.Unsure
			}
		}
		t.Add(kubectl.Cell{Text: h.Namespace}, kubectl.Cell{Text: h.String()}, kubectl.Cell{Text: state, Color: color},
			kubectl.Cell{Text: strings.Join(h.Finalizers, ",")}, kubectl.Cell{Text: strings.Join(h.Others, ",")})
	}
	_ = t.Write(out, kubectl.PaletteFor(out)) // nobody is left to be told
}

// confirmed asks whether to go on.
func confirmed(in io.Reader, out io.Writer, question string) bool {
	kubectl.Fprintf(out, "%s [y/N] ", question)
	line, _ := bufio.NewReader(in).ReadString('\n')
	kubectl.Fprintln(out)
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}
