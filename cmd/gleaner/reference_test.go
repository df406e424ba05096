package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

//go:generate go test . -run ^TestCommandsReference$ -count=1 -reference

// reference is not called -rewrite, as elsewhere: other tests here have that from a library.
var reference = flag.Bool("reference", false, "write docs/reference/commands.md anew; then read the diff")

const commandsPage = "../../docs/reference/commands.md"

const commandsPreamble = `# Commands

What ` + "`gleaner COMMAND --help`" + ` says, in one page, which is written from the code by ` + "`make generate`" + `. The exit code is 0 when all went well, 1 when
something went wrong, and 2 for a command line that makes no sense; where a command has others, it says so.
`

// TestCommandsReference writes the page on commands: this package alone can see them.
func TestCommandsReference(t *testing.T) {
	var b strings.Builder
	b.WriteString(commandsPreamble)
	describeCommand(&b, root())
	want := b.String()
	if *reference {
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

// describeCommand writes a command that can be run, and those below it.
func describeCommand(b *strings.Builder, cmd *cobra.Command) {
	if cmd.HasParent() {
		fmt.Fprintf(b, "\n## %s\n\n%s.\n\n```\n%s\n", cmd.CommandPath(), cmd.Short, cmd.UseLine())
		for _, text := range []string{cmd.Long, cmd.Example} {
			if text != "" {
				fmt.Fprintf(b, "\n%s\n", strings.Trim(text, "\n"))
			}
		}
		b.WriteString("```\n")
		describeFlags(b, cmd.NonInheritedFlags())
		if inherited := cmd.InheritedFlags(); inherited.HasAvailableFlags() {
			b.WriteString("\nAnd those of the commands above it:\n")
			describeFlags(b, inherited)
		}
	}
	for _, sub := range cmd.Commands() {
		if sub.IsAvailableCommand() && sub.Name() != "help" && sub.Name() != "completion" {
			describeCommand(b, sub)
		}
	}
}

func describeFlags(b *strings.Builder, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	b.WriteString("\n| flag | | default | |\n|---|---|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "`--" + f.Name + "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		kind, usage := pflag.UnquoteUsage(f)
		if f.Deprecated != "" {
			usage += " (deprecated: " + f.Deprecated + ")"
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", name, kind, defaultOf(f), strings.NewReplacer("|", `\|`, "<", "&lt;", "\n", " ").Replace(usage))
	})
}

// defaultOf is what a flag is without being given, as it is on every machine.
func defaultOf(f *pflag.Flag) string {
	text := f.DefValue
	if home, err := os.UserHomeDir(); err == nil {
		text = strings.ReplaceAll(text, home, "~")
	}
	if text == "" || text == "[]" || text == "false" {
		return ""
	}
	return "`" + strings.ReplaceAll(text, "|", `\|`) + "`"
}
