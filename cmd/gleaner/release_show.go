package main

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/gleaner-dev/gleaner/operator/release"
)

func show(out io.Writer, held []release.Held) {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NAMESPACE\tOBJECT\tSTATE\tTAKEN OFF\tOTHER FINALIZERS")
	for _, h := range held {
		state := "held"
		if h.Terminating {
			state = "being deleted: goes once it is released"
			if len(h.Others) != 0 {
				state = "being deleted: waits for others, too"
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", h.Namespace, h, state, strings.Join(h.Finalizers, ","), strings.Join(h.Others, ","))
	}
	_ = table.Flush() // nobody is left to be told
}

// confirmed asks whether to go on.
func confirmed(in io.Reader, out io.Writer, question string) bool {
	fmt.Fprintf(out, "%s [y/N] ", question)
	line, _ := bufio.NewReader(in).ReadString('\n')
	fmt.Fprintln(out)
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}
