package main

import (
	"context"
	"errors"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/monitor"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/replicas"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
)

const monitorLong = `List, for each policy and finalizer in Monitor mode, which objects it would have deleted or kept, before it is switched to Enforce.

The operator's records are read, so objects appear that were evaluated since the records begin, which is printed. Of each
object the newest decision counts. Records are lost when the operator restarts.`

type monitorOptions struct {
	*kubectl.Flags
	operator operatorFlags
	policy   string
}

func monitorCommand() *cobra.Command {
	o := &monitorOptions{Flags: kubectl.NewFlags("json", "yaml")}
	cmd := &cobra.Command{
		Use:   "monitor [--policy NAME] [-n NAMESPACE]",
		Short: "List what policies in Monitor mode would have deleted or kept",
		Long:  monitorLong,
		Example: `  gleaner monitor
  gleaner monitor --policy 'ClusterGCPolicy keep' -o yaml`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := errors.Join(o.Validate(), o.operator.validate()); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.AddTo(cmd)
	o.AddAllNamespaces(cmd)
	o.operator.addTo(cmd.Flags())
	cmd.Flags().StringVar(&o.policy, "policy", "", "list only this `policy` or finalizer, with its kind, such as 'GCPolicy shop/keep'")
	return cmd
}

func (o *monitorOptions) run(ctx context.Context, out, errOut io.Writer) error {
	config, err := o.Config()
	if err != nil {
		return err
	}
	config.WarningHandlerWithContext = rest.NoWarnings{}
	var d doing
	over := d.shown(errOut)
	defer over()
	d.set("asking the operator for its records")
	all, err := replicas.Find(ctx, o.operator.where(config))
	if err != nil {
		return err
	}
	defer replicas.Close(all)
	if len(all) == 0 {
		return errors.New("find the operator: no replica is running: see gleaner doctor, or name one with --endpoint")
	}
	report := monitor.Of(replicas.RecordsOf(ctx, all, replicas.About{}), o.policy, *o.Namespace)
	over()
	if o.Output != "" {
		return kubectl.Write(out, o.Output, struct {
			kubectl.Document `json:",inline"`
			monitor.Report
		}{kubectl.DocumentOf("MonitorReport"), report})
	}
	return showMonitored(section{out, kubectl.PaletteFor(out)}, report)
}

var monitorColors = map[monitor.Outcome]kubectl.Color{
	monitor.Deleted: kubectl.Bad, monitor.DependentsDeleted: kubectl.Bad, monitor.Released: kubectl.Bad,
	monitor.KeptForNow: kubectl.Unsure, monitor.KeptByFault: kubectl.Unsure, monitor.Kept: kubectl.Good, monitor.DependentsKept: kubectl.Good,
}

func showMonitored(s section, r monitor.Report) error {
	since := "which could not be read: no replica that leads was asked"
	if r.Since != nil {
		since = "which exist since " + moment(r.Since)
	}
	if len(r.Policies) == 0 {
		kubectl.Fprintf(s.out, "No decision in Monitor mode is in the records, %s.\n", since)
	} else {
		kubectl.Fprintf(s.out, "By the records, %s.\n", since)
	}
	for _, p := range r.Policies {
		s.title("%s: %s", p.Policy, plural(len(p.Decisions), "decision", "decisions"))
		t := kubectl.Table{Header: []string{"TIME", "NAMESPACE", "OBJECT", "WOULD BE", "DECISION", "REASON"}}
		for _, d := range p.Decisions {
			t.Add(
				kubectl.Cell{Text: moment(&d.Time), Color: kubectl.Faint}, kubectl.Cell{Text: d.Namespace}, kubectl.Cell{Text: d.Kind + "/" + d.Name},
				kubectl.Cell{Text: string(d.Outcome), Color: monitorColors[d.Outcome]}, kubectl.Cell{Text: d.Decision}, kubectl.Cell{Text: oneLine(d.Reason)},
			)
		}
		if err := indented(s.out, t, s.palette); err != nil {
			return err
		}
	}
	if len(r.Unasked) != 0 {
		s.title("Not known")
		for _, m := range r.Unasked {
			kubectl.Fprintf(s.out, "  %s could not be asked: %s\n", m.Replica, oneLine(m.Why))
		}
	}
	return nil
}
