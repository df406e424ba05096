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

var rewriteCorpus = flag.Bool("rewrite", false, "rewrite the expected results in the corpus")

const corpus = "testdata/verdicts.txt"

// corpusEntry is a verdict of the corpus.
type corpusEntry struct {
	claim     string
	hook      hostabi.Hook
	text      string
	wantLines []string // the expected result
}

// readCorpus returns the header of the corpus and its entries.
func readCorpus(t testing.TB) (string, []corpusEntry) {
	t.Helper()
	data, err := os.ReadFile(corpus)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(string(data), "\n## ")
	var entries []corpusEntry
	for _, part := range parts[1:] {
		lines := strings.Split(strings.TrimRight(part, "\n"), "\n")
		if len(lines) < 3 {
			t.Fatalf("read %s: entry %q is incomplete", corpus, lines[0])
		}
		hook, text, _ := strings.Cut(lines[1], " ")
		entries = append(entries, corpusEntry{lines[0], hostabi.Hook(hook), text, lines[2:]})
	}
	return parts[0], entries
}

func TestParseVerdict_Corpus(t *testing.T) {
	head, entries := readCorpus(t)
	out := head
	for _, e := range entries {
		got := "ok"
		verdict, err := hostabi.ParseVerdict(e.hook, []byte(e.text))
		if err != nil {
			got = err.Error()
		}
		if !*rewriteCorpus && got != e.wantLines[0] {
			t.Errorf("%s:\n got %s\nwant %s", e.claim, got, e.wantLines[0])
		}
		if bad := new(hostabi.VerdictError); err != nil && (!errors.As(err, &bad) || !reflect.ValueOf(verdict).IsZero()) {
			t.Errorf("%s: got error %v and verdict %v, want a *VerdictError and the zero Verdict", e.claim, err, verdict)
		}
		e.wantLines[0] = got
		out += "\n## " + strings.Join(append([]string{e.claim, strings.TrimRight(string(e.hook)+" "+e.text, " ")}, e.wantLines...), "\n") + "\n"
	}
	if *rewriteCorpus {
		if err := os.WriteFile(corpus, []byte(out), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
