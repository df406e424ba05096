// Package test looks at the tests themselves.
package test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var rewrite = flag.Bool("rewrite", false, "write docs/conformance.md anew; then read the diff")

const (
	root         = ".."
	requirements = "testdata/requirements"
	document     = "../docs/conformance.md"

	// What a remark in the list may begin with: see there.
	by       = "by "
	untested = "untested: "
	planned  = "planned: " // it is not there yet
)

// A requirement is a line of the list.
type requirement struct {
	id, title, remark string
	section           string
}

// TestEveryRequirementHasATest reads the tests itself, as TestLayering does.
func TestEveryRequirementHasATest(t *testing.T) {
	list := readRequirements(t)
	found, names := readTests(t)

	known := map[string]bool{}
	for _, r := range list {
		if known[r.id] {
			t.Errorf("%s is listed twice", r.id)
		}
		known[r.id] = true
		if problem := r.check(found[r.id], names); problem != "" {
			t.Errorf("%s (%s): %s", r.id, r.title, problem)
		}
	}

	text := describe(list, found, names)
	if *rewrite {
		if err := os.WriteFile(document, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != text {
		t.Errorf("%s is out of date: run this test with -rewrite, then read the diff", document)
	}
}

// check says what is wrong with a requirement's tests, or nothing.
func (r requirement) check(tests []place, names map[string]place) string {
	if test, ok := strings.CutPrefix(r.remark, by); ok {
		if _, exists := names[test]; !exists {
			return "there is no test " + test
		}
		return ""
	}
	exempt := strings.HasPrefix(r.remark, untested) || strings.HasPrefix(r.remark, planned)
	switch {
	case exempt && len(tests) != 0:
		return "is said to be untested or planned, and " + tests[0].name + " is named after it"
	case !exempt && len(tests) == 0:
		return "no test is named after it"
	}
	return ""
}

func readRequirements(t *testing.T) []requirement {
	t.Helper()
	src, err := os.ReadFile(requirements)
	if err != nil {
		t.Fatal(err)
	}
	var list []requirement
	section := ""
	for line := range strings.Lines(string(src)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		if title, ok := strings.CutPrefix(line, "= "); ok {
			section = title
			continue
		}
		parts := strings.Split(line, "|")
		if len(parts) != 3 {
			t.Fatalf("%s: %q has not three parts", requirements, line)
		}
		list = append(list, requirement{
			id: strings.TrimSpace(parts[0]), title: strings.TrimSpace(parts[1]), remark: strings.TrimSpace(parts[2]),
			section: section,
		})
	}
	return list
}

// describe writes the document.
func describe(list []requirement, found map[string][]place, names map[string]place) string {
	var b strings.Builder
	b.WriteString(preamble)
	section := ""
	for _, r := range list {
		if r.section != section {
			section = r.section
			fmt.Fprintf(&b, "\n## %s\n\n| | | tests | remark |\n|---|---|---|---|\n", section)
		}
		places, remark := found[r.id], r.remark
		if test, ok := strings.CutPrefix(remark, by); ok {
			places, remark = append(slices.Clone(places), names[test]), ""
		}
		var links []string
		for _, p := range places {
			links = append(links, fmt.Sprintf("[%s](../%s)", p.name, p.file))
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", r.id, r.title, strings.Join(links, ", "), remark)
	}
	return b.String()
}

const preamble = `# Conformance

What users of Kubernetes rely on in its garbage collector, what is known to be wrong with it, and the tests of both. What is *planned* is not
there yet. A story
(in lower case) is a text file that reads step by step. This table is written by the test that keeps it: after a change of
what tests are named, run ` + "`go test ./test -rewrite`" + `, then read the diff.
`
