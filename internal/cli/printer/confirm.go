package printer

import (
	"bufio"
	"errors"
	"io"
	"strings"
)

// errNoAnswer is the error if the input has ended before there was an answer, as in a script.
var errNoAnswer = errors.New("the prompt was not answered, so nothing was done; to go on without a prompt, use --yes")

// Prompt asks for confirmation before something is done.
type Prompt struct {
	In  io.Reader
	Out io.Writer
	Yes bool // do not ask
}

// Confirm reports whether to go on. If the answer is no, it writes what follows from that.
func (p Prompt) Confirm(question, otherwise string) (bool, error) {
	if p.Yes {
		return true, nil
	}
	yes, err := ask(p.In, p.Out, question)
	if !yes && err == nil {
		_, _ = Fprintln(p.Out, otherwise)
	}
	return yes, err
}

// Confirmed reports whether to go on, which neither a no nor a missing answer allows.
func (p Prompt) Confirmed(question string) bool {
	if p.Yes {
		return true
	}
	yes, _ := ask(p.In, p.Out, question) // an error comes with a no
	return yes
}

// ask asks a question. Any answer but y or yes is no; that there is none is an error.
func ask(in io.Reader, out io.Writer, question string) (bool, error) {
	_, _ = Fprintf(out, "%s [y/N] ", question)
	line, err := bufio.NewReader(in).ReadString('\n')
	_, _ = Fprintln(out)
	answer := strings.ToLower(strings.TrimSpace(line))
	if answer == "" && err != nil {
		return false, errNoAnswer
	}
	return answer == "y" || answer == "yes", nil
}
