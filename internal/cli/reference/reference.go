// Package reference describes commands for the pages of docs/reference.
package reference

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Page returns a page that describes all commands of a program, after a preamble.
func Page(preamble string, root *cobra.Command) string {
	var b strings.Builder
	b.WriteString(preamble)
	describe(&b, root)
	return b.String()
}

// describe writes a command that can be run, and those below it.
func describe(b *strings.Builder, cmd *cobra.Command) {
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
			describe(b, sub)
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
