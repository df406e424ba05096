package stuck

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/internal/cli/arguments"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
)

const long = `List objects that have been terminating for too long, grouped by the finalizer that blocks them, with its owner, the time and what
to do about it. Objects that a Finalizer or ClusterFinalizer reports as stuck are listed immediately, with the reason and time.
For terminating namespaces, their conditions show what is left. Objects that are not collected because they have too many owner
references are also listed.

Without -n, all namespaces and cluster-scoped objects are checked. Types that could not be read are listed.`

// maxShownObjects is the maximum number of objects per group without -o wide.
const maxShownObjects = 5

type commandOptions struct {
	*kubectl.Flags
	longerThan time.Duration
}

// Command returns the command gleaner stuck.
func Command() *cobra.Command {
	o := &commandOptions{Flags: kubectl.NewFlags("json", "yaml", "wide"), longerThan: 5 * time.Minute}
	cmd := &cobra.Command{
		Use:   "stuck [--longer-than 5m] [-n NAMESPACE]",
		Short: "List objects that are stuck terminating, by what blocks them",
		Long:  long,
		Example: `  gleaner stuck
  gleaner stuck -n shop --longer-than 1h -o wide`,
		Args: arguments.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.AddTo(cmd)
	o.AddAllNamespaces(cmd)
	cmd.Flags().DurationVar(&o.longerThan, "longer-than", o.longerThan, "minimum time that listed objects have been terminating, except those that a finalizer reports as stuck")
	return cmd
}

func (o *commandOptions) validate() error {
	if o.longerThan < 0 {
		return exit.Usagef("--longer-than=%s: use 0s or more, as in 5m", o.longerThan)
	}
	return o.Validate()
}

func (o *commandOptions) run(ctx context.Context, out, errOut io.Writer) error {
	config, err := o.Config()
	if err != nil {
		return err
	}
	config.WarningHandlerWithContext = rest.NoWarnings{} // of types that are old: all are listed
	client, err := finalizers.NewClient(config)
	if err != nil {
		return err
	}
	var d printer.Step
	over := d.Show(errOut)
	defer over()
	report, err := Find(ctx, Options{
		Config: config, Gleaner: client, Namespace: *o.Namespace, LongerThan: o.longerThan, Progress: d.Set,
	})
	over()
	if err != nil {
		return err
	}
	if o.Output == "json" || o.Output == "yaml" {
		return printer.Write(out, o.Output, struct {
			printer.Document `json:",inline"`
			Report
		}{printer.DocumentOf("StuckReport"), report})
	}
	return showStuck(printer.NewSection(out, printer.PaletteFor(out)), report, o.Output == "wide")
}

func showStuck(s printer.Section, r Report, wide bool) error {
	than := duration.HumanDuration(r.LongerThan.Duration)
	for _, line := range r.Paused {
		printer.Fprintf(s.Out, "%s\n", s.Palette.Paint(printer.Caution, printer.OneLine(line)))
	}
	if r.Objects == 0 {
		nothing := "No object"
		if len(r.Unknown) != 0 {
			nothing = "No object that could be read"
		}
		if r.Namespace != "" {
			nothing += " in namespace " + r.Namespace
		}
		printer.Fprintf(s.Out, "%s has been terminating for more than %s.\n", nothing, than)
	}
	if n := r.Objects - r.ReportedStuck; n > 0 {
		printer.Fprintln(s.Out, s.Palette.Paint(printer.Caution, printer.Count(n, "object has", "objects have")+" been terminating for more than "+than+"."))
	}
	if r.ReportedStuck > 0 {
		printer.Fprintln(s.Out, s.Palette.Paint(printer.Caution, printer.Count(r.ReportedStuck, "object is", "objects are")+" stuck after a shorter time, as reported by a finalizer."))
	}
	for _, g := range r.Groups {
		if err := showGroup(s, r, g, wide); err != nil {
			return err
		}
	}
	if err := showTooManyOwners(s, r, wide); err != nil {
		return err
	}
	if len(r.Unknown) != 0 {
		s.Title("Unknown")
		for _, u := range r.Unknown {
			printer.Fprintf(s.Out, "  %s\n", printer.OneLine(u))
		}
	}
	return nil
}

// showTooManyOwners prints the objects with too many owners.
func showTooManyOwners(s printer.Section, r Report, wide bool) error {
	if len(r.TooManyOwners) == 0 {
		return nil
	}
	s.Title("Too many owner references: %s", printer.Count(len(r.TooManyOwners), "object", "objects"))
	s.Field("waits for", "the garbage collector to read the owners, which takes long", "")
	s.Field("to do", "remove the references to owners that do not exist, or delete the object; check which controller adds them", printer.Hint)
	t := printer.Table{Header: []string{"NAMESPACE", "OBJECT", "AGE", "OWNERS", "NOT FOUND"}}
	shown := r.TooManyOwners
	if !wide {
		shown = shown[:min(len(shown), maxShownObjects)]
	}
	for _, o := range shown {
		t.Add(
			printer.Cell{Text: o.Namespace}, printer.Cell{Text: o.Resource + "/" + o.Name}, printer.Cell{Text: duration.HumanDuration(r.At.Sub(o.Created.Time))},
			printer.Cell{Text: strconv.Itoa(o.Owners)}, printer.Cell{Text: strconv.Itoa(o.NotFound), Color: printer.Caution},
		)
	}
	if err := printer.PrintIndented(s.Out, t, s.Palette); err != nil {
		return err
	}
	if more := len(r.TooManyOwners) - len(shown); more > 0 {
		printer.Fprintf(s.Out, "  and %d more; use -o wide to see them\n", more)
	}
	return nil
}

func showGroup(s printer.Section, r Report, g Group, wide bool) error {
	s.Title("%s: %s", g.Finalizer, printer.Count(g.Count, "object", "objects"))
	s.Field("owner", g.Owner, "")
	if len(g.Objects) == 1 || g.Kind != Contents {
		s.Field("waits for", g.WaitsFor, "")
	}
	s.Field("since", printer.Moment(&g.Since), "")
	s.Field("to do", g.Advice, printer.Hint)
	t := printer.Table{Header: []string{"NAMESPACE", "OBJECT", "FOR", "BLOCKED BY", "REASON", "STUCK FOR", "MESSAGE"}}
	if wide {
		t.Header = append(t.Header, "FINALIZERS", "UID")
	}
	shown := g.Objects
	if !wide {
		shown = shown[:min(len(shown), maxShownObjects)]
	}
	for _, o := range shown {
		t.Add(cellsOf(o, r.At, g.Kind == Contents && len(g.Objects) > 1, wide)...)
	}
	if err := printer.PrintIndented(s.Out, t, s.Palette); err != nil {
		return err
	}
	if more := len(g.Objects) - len(shown); more > 0 {
		printer.Fprintf(s.Out, "  and %d more; use -o wide to see them\n", more)
	}
	return nil
}

// cellsOf returns the row of an object. It includes the conditions of namespaces if the
// group has several objects.
func cellsOf(o Object, now metav1.Time, conditions, wide bool) []printer.Cell {
	var reason, since, says, blocked string
	if h := o.Finalizer; h != nil {
		reason, says = h.Reason, h.Message
		if h.Since != nil {
			since = duration.HumanDuration(now.Sub(h.Since.Time))
		}
		if h.Error != "" {
			says = h.Error
		}
	}
	if conditions {
		says = strings.Join(o.Conditions, "; ")
	}
	if len(o.WaitsFor) != 0 {
		blocked = o.WaitsFor[0].Object.String()
		if more := o.Blocking - 1; more > 0 {
			blocked += fmt.Sprintf(" and %d more", more)
		}
	}
	row := []printer.Cell{
		{Text: o.Namespace}, {Text: o.Resource + "/" + o.Name}, {Text: duration.HumanDuration(now.Sub(o.Since.Time)), Color: printer.Caution},
		{Text: blocked}, {Text: reason}, {Text: since}, {Text: printer.OneLine(says), Color: printer.Bad},
	}
	if wide {
		row = append(row, printer.Cell{Text: strings.Join(o.Finalizers, ",")}, printer.Cell{Text: string(o.UID)})
	}
	return row
}
