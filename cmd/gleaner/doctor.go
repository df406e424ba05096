package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/doctor"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
)

const doctorLong = `Look a Gleaner installation over: whether the operator runs, collects and is alone; whether the API server, the clocks, the types,
the rights, the webhooks and their certificates are as they should be; and what of the policies, modules and finalizers is not
ready. Each finding says what to do.

Nothing is written: the API server is asked for one dry run.

Exit codes: 0 if no problem was found, though there may be warnings and checks that could not be made; 1 for a problem or an error;
2 for an invalid command line; 3 if no other problem was found, but it is unknown whether the operator works, because its pods may not
be listed.`

type doctorOptions struct {
	*kubectl.Flags
	operator operatorFlags
	holds    bool
	all      bool
}

func doctorCommand() *cobra.Command {
	o := &doctorOptions{Flags: kubectl.NewFlags("json", "yaml"), holds: true}
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Look a Gleaner installation over, and say what to do",
		Long:  doctorLong,
		Example: `  gleaner doctor
  gleaner doctor --all                                     # what is well, too
  gleaner doctor --endpoint https://127.0.0.1:8443 -o json`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(o.Validate(), o.operator.validate()); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.AddTo(cmd)
	o.operator.addTo(cmd.Flags())
	cmd.Flags().BoolVar(&o.holds, "holds", o.holds, "look for holds that no policy governs, for which all objects are listed")
	cmd.Flags().BoolVar(&o.all, "all", false, "show what is well, too")
	return cmd
}

func (o *doctorOptions) run(ctx context.Context, out, errOut io.Writer) error {
	config, err := o.Config()
	if err != nil {
		return err
	}
	config.WarningHandlerWithContext = rest.NoWarnings{} // of types that are old: all are listed
	client, err := gleanerClient(config)
	if err != nil {
		return err
	}
	var d doing
	over := d.shown(errOut)
	defer over()
	report, err := doctor.Look(ctx, doctor.Question{
		Config: config, Gleaner: client, Operator: o.operator.where(config), Version: version, Holds: o.holds, Told: d.set,
	})
	over()
	if err != nil {
		return err
	}
	if o.Output != "" {
		err = kubectl.Write(out, o.Output, struct {
			kubectl.Document `json:",inline"`
			doctor.Report
		}{kubectl.DocumentOf("DoctorReport"), report})
	} else {
		showReport(section{out, kubectl.PaletteFor(out)}, report, o.all)
	}
	if err != nil {
		return err
	}
	return doctorExit(report)
}

// exitBlind is the exit code of doctor where it is not known whether the operator works.
const exitBlind = 3

// doctorExit is the exit code that a report calls for; nil: 0.
func doctorExit(r doctor.Report) error {
	switch {
	case r.Problems != 0:
		return kubectl.Exit{Code: exitFailure}
	case r.Blind:
		return kubectl.Exit{Code: exitBlind}
	default:
		return nil
	}
}

var severityColors = map[doctor.Severity]kubectl.Color{
	doctor.Problem: kubectl.Bad, doctor.Unknown: kubectl.Unsure, doctor.Warning: kubectl.Unsure, doctor.OK: kubectl.Good,
}

func showReport(s section, r doctor.Report, all bool) {
	well := 0
	for _, f := range r.Findings {
		if f.Severity == doctor.OK {
			if well++; !all {
				continue
			}
		}
		kubectl.Fprintf(s.out, "%s  %s: %s\n", s.palette.Paint(severityColors[f.Severity], fmt.Sprintf("%-7s", f.Severity)), f.Check, oneLine(f.Message))
		if f.Do != "" {
			kubectl.Fprintf(s.out, "         %s\n", s.palette.Paint(kubectl.Calm, "to do: "+oneLine(f.Do)))
		}
	}
	kubectl.Fprintf(s.out, "%s, %s, %d not known, %d well.\n", plural(r.Problems, "problem", "problems"), plural(r.Warnings, "warning", "warnings"), r.Unknown, well)
}
