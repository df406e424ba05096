package hostabi_test

import (
	"errors"
	"flag"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/hostabi"
)

var rewrite = flag.Bool("rewrite", false, "write what is, in place of what should be, into the corpus")

const corpus = "testdata/verdicts.txt"

// entry is a verdict of the corpus.
type entry struct {
	claim string
	hook  hostabi.Hook
	text  string
	lines []string // what should come of it
}

// readCorpus gives what stands above the first entry, and the entries.
func readCorpus(t testing.TB) (string, []entry) {
	t.Helper()
	data, err := os.ReadFile(corpus)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(data), "\n## ")
	var entries []entry
	for _, part := range parts[1:] {
		lines := strings.Split(strings.TrimRight(part, "\n"), "\n")
		if len(lines) < 3 {
			t.Fatalf("read %s: entry %q is cut short", corpus, lines[0])
		}
		hook, text, _ := strings.Cut(lines[1], " ")
		entries = append(entries, entry{lines[0], hostabi.Hook(hook), text, lines[2:]})
	}
	return parts[0], entries
}

func TestTheParserGivesEachVerdictItsDue(t *testing.T) {
	head, entries := readCorpus(t)
	out := head
	for _, e := range entries {
		got := "ok"
		verdict, err := hostabi.ParseVerdict(e.hook, []byte(e.text))
		if err != nil {
			got = err.Error()
		}
		if !*rewrite && got != e.lines[0] {
			t.Errorf("%s:\n got %s\nwant %s", e.claim, got, e.lines[0])
		}
		if bad := new(hostabi.VerdictError); err != nil && (!errors.As(err, &bad) || !reflect.ValueOf(verdict).IsZero()) {
			t.Errorf("%s: an error that is no *VerdictError, or a verdict beside it: %v, %v", e.claim, err, verdict)
		}
		e.lines[0] = got
		out += "\n## " + strings.Join(append([]string{e.claim, strings.TrimRight(string(e.hook)+" "+e.text, " ")}, e.lines...), "\n") + "\n"
	}
	if *rewrite {
		if err := os.WriteFile(corpus, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
