package monitor

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/internal/cli/arguments"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
)

const long = `List the objects that each policy or finalizer in Monitor mode would have deleted or kept, to check before switching it to Enforce.

The list is built from the operator's records, so it contains the objects evaluated since the records begin, which is printed. For
each object, the newest decision is shown. Records are lost when the operator restarts.`

type options struct {
	*kubectl.Flags
	operator replicas.Flags
	policy   string
}

// Command returns the command gleaner monitor.
func Command() *cobra.Command {
	o := &options{Flags: kubectl.NewFlags("json", "yaml")}
	cmd := &cobra.Command{
		Use:   "monitor [--policy NAME] [-n NAMESPACE]",
		Short: "List what policies in Monitor mode would have deleted or kept",
		Long:  long,
		Example: `  gleaner monitor
  gleaner monitor --policy 'ClusterGCPolicy keep' -o yaml`,
		Args: arguments.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(o.Validate(), o.operator.Validate()); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.AddTo(cmd)
	o.AddAllNamespaces(cmd)
	o.operator.AddTo(cmd.Flags())
	cmd.Flags().StringVar(&o.policy, "policy", "", "list only this `policy` or finalizer, with its kind, such as 'GCPolicy shop/keep'")
	return cmd
}

func (o *options) run(ctx context.Context, out, errOut io.Writer) error {
	config, err := o.Config()
	if err != nil {
		return err
	}
	config.WarningHandlerWithContext = rest.NoWarnings{}
	var d printer.Step
	over := d.Show(errOut)
	defer over()
	d.Set("Reading the operator's records")
	all, err := replicas.Find(ctx, o.operator.Options(config))
	if err != nil {
		return err
	}
	defer replicas.Close(all)
	if len(all) == 0 {
		return errors.New("find the operator: no replica is running; run gleaner doctor, or set --endpoint")
	}
	report := FromRecords(replicas.QueryRecords(ctx, all, replicas.Selection{InMemory: true}), o.policy, *o.Namespace)
	over()
	if o.Output != "" {
		return printer.Write(out, o.Output, struct {
			printer.Document `json:",inline"`
			Report
		}{printer.DocumentOf("MonitorReport"), report})
	}
	return showMonitored(printer.NewSection(out, printer.PaletteFor(out)), report)
}

var monitorColors = map[Outcome]printer.Color{
	Deleted: printer.Bad, DependentsDeleted: printer.Bad, Released: printer.Bad,
	KeptForNow: printer.Caution, KeptByFault: printer.Caution, Kept: printer.Good, DependentsKept: printer.Good,
}

func showMonitored(s printer.Section, r Report) error {
	since := "which could not be read: no leading replica could be queried"
	if r.Since != nil {
		since = "which begin at " + printer.Moment(r.Since)
	}
	if len(r.Policies) == 0 {
		printer.Fprintf(s.Out, "There are no decisions in Monitor mode in the records, %s.\n", since)
	} else {
		printer.Fprintf(s.Out, "According to the records, %s.\n", since)
	}
	for _, p := range r.Policies {
		s.Title("%s: %s", p.Policy, printer.Count(len(p.Decisions), "decision", "decisions"))
		t := printer.Table{Header: []string{"TIME", "NAMESPACE", "OBJECT", "OUTCOME", "DECISION", "REASON"}}
		for _, d := range p.Decisions {
			t.Add(
				printer.Cell{Text: printer.Moment(&d.Time), Color: printer.Faint}, printer.Cell{Text: d.Namespace}, printer.Cell{Text: d.Kind + "/" + d.Name},
				printer.Cell{Text: string(d.Outcome), Color: monitorColors[d.Outcome]}, printer.Cell{Text: d.Decision}, printer.Cell{Text: printer.OneLine(d.Reason)},
			)
		}
		if err := printer.PrintIndented(s.Out, t, s.Palette); err != nil {
			return err
		}
	}
	if len(r.Unreachable) != 0 {
		s.Title("Unknown")
		for _, m := range r.Unreachable {
			printer.Fprintf(s.Out, "  %s could not be queried: %s\n", m.Replica, printer.OneLine(m.Reason))
		}
	}
	return nil
}
