package page

import (
	"slices"
	"strings"
)

// Part is a part of a text: words, or a command that can be copied.
type Part struct {
	Text    string
	Command bool
}

// Commands returns a text in parts, with each command line as one of its own.
func Commands(text string) (parts []Part) {
	words := strings.SplitAfter(text, " ")
	said := 0 // words that are in parts
	for i := 0; i < len(words); i++ {
		n := commandLength(words[i:])
		if n == 0 {
			continue
		}
		before, line := strings.Join(words[said:i], ""), strings.Join(words[i:i+n], "")
		command := strings.TrimRight(line, " .,;:")
		if before != "" {
			parts = append(parts, Part{Text: before})
		}
		parts = append(parts, Part{Text: command, Command: true})
		words[i+n-1] = line[len(command):]
		said, i = i+n-1, i+n-1
	}
	if rest := strings.Join(words[said:], ""); rest != "" {
		parts = append(parts, Part{Text: rest})
	}
	return parts
}

var (
	programs = []string{"gleaner", "kubectl"}

	// objectVerbs are followed by types and names, which look like other words.
	objectVerbs = []string{"annotate", "delete", "describe", "get", "label", "patch"}
	otherVerbs  = []string{"archive", "doctor", "explain", "graph", "monitor", "pause", "preview", "rbac", "records", "release", "restore", "resume", "stuck", "undo"}

	// valueFlags are followed by a value, and connectives by the rest of a sentence.
	valueFlags  = []string{"-n", "--namespace", "--finalizer", "--for", "--policy", "--uid"}
	connectives = []string{"and", "as", "for", "in", "of", "or", "that", "to", "which", "with"}
)

// commandLength returns the number of words of the command line with which words begin; 0 if they don't.
func commandLength(words []string) int {
	if len(words) < 2 || !slices.Contains(programs, strings.TrimSpace(words[0])) {
		return 0
	}
	verb, ends := word(words[1])
	named := slices.Contains(objectVerbs, verb)
	if !named && !slices.Contains(otherVerbs, verb) {
		return 0
	}
	n, previous := 2, verb
	for ; n < len(words) && !ends; n++ {
		var next string
		next, ends = word(words[n])
		isName := named && n < 4 && !slices.Contains(connectives, next)
		if !isName && !isArgument(next, previous) {
			break
		}
		previous = next
	}
	return n
}

// word returns a word without what ends a clause, and whether that was there.
func word(text string) (string, bool) {
	text = strings.TrimSpace(text)
	bare := strings.TrimRight(text, ".,;:")
	return bare, bare != text
}

// isArgument reports whether a word can be nothing else.
func isArgument(text, previous string) bool {
	return strings.HasPrefix(text, "-") || slices.Contains(valueFlags, previous) || strings.ContainsAny(text, "/=") || strings.HasPrefix(text, "+%") ||
		len(text) > 1 && strings.ToUpper(text) == text
}
