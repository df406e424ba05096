package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/internal/cli/arguments"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
)

const long = `Check a Gleaner installation: that exactly one operator is running and collecting; that the API server, clocks, custom resource
definitions, permissions, webhooks and certificates are correct; and that policies, modules and finalizers are ready. Each finding
includes what to do.

Nothing is changed: one delete is sent to the API server as a dry run.

Exit codes: 0 if no problem was found, possibly with warnings and failed checks; 1 for a problem or an error; 2 for an invalid command
line; 3 if no other problem was found, but the status of the operator is unknown because its pods can't be listed.`

type commandOptions struct {
	*kubectl.Flags
	operator replicas.Flags
	holds    bool
	all      bool
	version  string
}

// Command returns the command gleaner doctor.
func Command(version string) *cobra.Command {
	o := &commandOptions{Flags: kubectl.NewFlags("json", "yaml"), holds: true, version: version}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check a Gleaner installation and suggest fixes",
		Long:  long,
		Example: `  gleaner doctor
  gleaner doctor --all                                     # also checks that passed
  gleaner doctor --endpoint https://127.0.0.1:8443 -o json`,
		Args: arguments.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(o.Validate(), o.operator.Validate()); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.AddTo(cmd)
	o.operator.AddTo(cmd.Flags())
	cmd.Flags().BoolVar(&o.holds, "holds", o.holds, "check for holds that no policy governs, which lists all objects")
	cmd.Flags().BoolVar(&o.all, "all", false, "also show checks that passed")
	return cmd
}

func (o *commandOptions) run(ctx context.Context, out, errOut io.Writer) error {
	config, err := o.Config()
	if err != nil {
		return err
	}
	config.WarningHandlerWithContext = rest.NoWarnings{} // all types are listed, deprecated ones too
	client, err := finalizers.NewClient(config)
	if err != nil {
		return err
	}
	var d printer.Step
	over := d.Show(errOut)
	defer over()
	report, err := Run(ctx, Options{
		Config: config, Gleaner: client, Operator: o.operator.Options(config), Version: o.version, Holds: o.holds, Progress: d.Set,
	})
	over()
	if err != nil {
		return err
	}
	if o.Output != "" {
		err = printer.Write(out, o.Output, struct {
			printer.Document `json:",inline"`
			Report
		}{printer.DocumentOf("DoctorReport"), report})
	} else {
		showReport(printer.NewSection(out, printer.PaletteFor(out)), report, o.all)
	}
	if err != nil {
		return err
	}
	return exitForReport(report)
}

// exitOperatorUnknown is the exit code of doctor if the status of the operator is unknown.
const exitOperatorUnknown = 3

// exitForReport returns the exit code for a report; nil means 0.
func exitForReport(r Report) error {
	switch {
	case r.Problems != 0:
		return exit.Error{Code: exit.CodeFailure}
	case r.OperatorUnknown:
		return exit.Error{Code: exitOperatorUnknown}
	default:
		return nil
	}
}

var severityColors = map[Severity]printer.Color{
	Problem: printer.Bad, Unknown: printer.Caution, Warning: printer.Caution, OK: printer.Good,
}

func showReport(s printer.Section, r Report, all bool) {
	well := 0
	for _, f := range r.Findings {
		if f.Severity == OK {
			if well++; !all {
				continue
			}
		}
		printer.Fprintf(s.Out, "%s  %s: %s\n", s.Palette.Paint(severityColors[f.Severity], fmt.Sprintf("%-7s", f.Severity)), f.Check, printer.OneLine(f.Message))
		if f.Advice != "" {
			printer.Fprintf(s.Out, "         %s\n", s.Palette.Paint(printer.Hint, "to do: "+printer.OneLine(f.Advice)))
		}
	}
	printer.Fprintf(s.Out, "%s, %s, %d unknown, %d passed.\n", printer.Count(r.Problems, "problem", "problems"), printer.Count(r.Warnings, "warning", "warnings"), r.Unknown, well)
}
