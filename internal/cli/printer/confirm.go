package printer

import (
	"bufio"
	"io"
	"strings"
)

// Confirm asks for confirmation. Anything but y or yes is none, and so is the end of the input.
func Confirm(in io.Reader, out io.Writer, question string) bool {
	_, _ = Fprintf(out, "%s [y/N] ", question)
	line, _ := bufio.NewReader(in).ReadString('\n')
	_, _ = Fprintln(out)
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}
