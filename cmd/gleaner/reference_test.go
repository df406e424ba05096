package main

import (
	"flag"
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/internal/cli/reference"
)

//go:generate go test . -run ^TestCommandsReference$ -count=1 -reference

// rewriteReference is not called -rewrite, as elsewhere: datadriven defines that flag.
var rewriteReference = flag.Bool("reference", false, "rewrite docs/reference/commands.md; then read the diff")

const commandsPage = "../../docs/reference/commands.md"

const commandsPreamble = `# Commands

The output of ` + "`gleaner COMMAND --help`" + ` on one page, written from the code by ` + "`make generate`" + `. Exit codes are 0 for success, 1 for an
error, and 2 for an invalid command line, unless a command documents others.
`

// TestCommandsReference writes the page on the commands of this program.
func TestCommandsReference(t *testing.T) {
	want := reference.Page(commandsPreamble, rootCommand())
	if *rewriteReference {
		if err := os.WriteFile(commandsPage, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(commandsPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, string(have)); diff != "" {
		t.Errorf("%s is out of date: run make generate, then read the diff (-want +have):\n%s", commandsPage, diff)
	}
}
