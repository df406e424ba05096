package main

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

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/stuck"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
)

const stuckLong = `List everything that has been terminating for too long, grouped by what holds it: whose each finalizer is, since when, and
what to do about it. What a Finalizer or ClusterFinalizer reports as stuck is listed at once, with the reason and since when.
Of namespaces that are terminating their conditions say what is left. Objects that are not collected because they have too
many owner references are listed, too.

Without -n everything is looked through, and what is in no namespace. What could not be read is told.`

// shownOfGroup is how many objects of a group are shown without -o wide.
const shownOfGroup = 5

type stuckOptions struct {
	*kubectl.Flags
	longerThan time.Duration
}

func stuckCommand() *cobra.Command {
	o := &stuckOptions{Flags: kubectl.NewFlags("json", "yaml", "wide"), longerThan: 5 * time.Minute}
	cmd := &cobra.Command{
		Use:   "stuck [--longer-than 5m] [-n NAMESPACE]",
		Short: "List what has been terminating for too long, by what holds it",
		Long:  stuckLong,
		Example: `  gleaner stuck
  gleaner stuck -n shop --longer-than 1h -o wide`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.AddTo(cmd)
	o.AddAllNamespaces(cmd)
	cmd.Flags().DurationVar(&o.longerThan, "longer-than", o.longerThan, "list only objects terminating for longer, and those that a finalizer reports as stuck")
	return cmd
}

func (o *stuckOptions) validate() error {
	if o.longerThan < 0 {
		return kubectl.Usage("--longer-than=%s: use 0s or more, as in 5m", o.longerThan)
	}
	return o.Validate()
}

func (o *stuckOptions) run(ctx context.Context, out, errOut io.Writer) error {
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
	report, err := stuck.Find(ctx, stuck.Question{
		Config: config, Gleaner: client, Namespace: *o.Namespace, LongerThan: o.longerThan, Told: d.set,
	})
	over()
	if err != nil {
		return err
	}
	if o.Output == "json" || o.Output == "yaml" {
		return kubectl.Write(out, o.Output, struct {
			kubectl.Document `json:",inline"`
			stuck.Report
		}{kubectl.DocumentOf("StuckReport"), report})
	}
	return showStuck(section{out, kubectl.PaletteFor(out)}, report, o.Output == "wide")
}

func showStuck(s section, r stuck.Report, wide bool) error {
	than := duration.HumanDuration(r.LongerThan.Duration)
	if r.Objects == 0 {
		nothing := "Nothing"
		if len(r.Unknown) != 0 {
			nothing = "Nothing that could be read"
		}
		if r.Namespace != "" {
			nothing += " in namespace " + r.Namespace
		}
		kubectl.Fprintf(s.out, "%s has been terminating for more than %s.\n", nothing, than)
	}
	if n := r.Objects - r.Early; n > 0 {
		kubectl.Fprintln(s.out, s.palette.Paint(kubectl.Unsure, plural(n, "object has", "objects have")+" been terminating for more than "+than+"."))
	}
	if r.Early > 0 {
		kubectl.Fprintln(s.out, s.palette.Paint(kubectl.Unsure, plural(r.Early, "object is", "objects are")+" stuck after a shorter time: a finalizer reports that its module can't go on."))
	}
	for _, g := range r.Groups {
		if err := showGroup(s, r, g, wide); err != nil {
			return err
		}
	}
	if err := showCrowded(s, r, wide); err != nil {
		return err
	}
	if len(r.Unknown) != 0 {
		s.title("Not known")
		for _, u := range r.Unknown {
			kubectl.Fprintf(s.out, "  %s\n", oneLine(u))
		}
	}
	return nil
}

// showCrowded shows what has too many owners.
func showCrowded(s section, r stuck.Report, wide bool) error {
	if len(r.TooManyOwners) == 0 {
		return nil
	}
	s.title("Too many owner references: %s", plural(len(r.TooManyOwners), "object", "objects"))
	s.field("waits for", "the collector to read the owners, which it does slowly", "")
	s.field("to do", "remove the references to owners that do not exist, or delete the object; see who writes it", kubectl.Calm)
	t := kubectl.Table{Header: []string{"NAMESPACE", "OBJECT", "AGE", "OWNERS", "NOT FOUND"}}
	shown := r.TooManyOwners
	if !wide {
		shown = shown[:min(len(shown), shownOfGroup)]
	}
	for _, o := range shown {
		t.Add(
			kubectl.Cell{Text: o.Namespace}, kubectl.Cell{Text: o.Resource + "/" + o.Name}, kubectl.Cell{Text: duration.HumanDuration(r.At.Sub(o.Created.Time))},
			kubectl.Cell{Text: strconv.Itoa(o.Owners)}, kubectl.Cell{Text: strconv.Itoa(o.NotFound), Color: kubectl.Unsure},
		)
	}
	if err := indented(s.out, t, s.palette); err != nil {
		return err
	}
	if more := len(r.TooManyOwners) - len(shown); more > 0 {
		kubectl.Fprintf(s.out, "  and %d more: -o wide shows them\n", more)
	}
	return nil
}

func plural(n int, one, more string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, more)
}

func showGroup(s section, r stuck.Report, g stuck.Group, wide bool) error {
	s.title("%s: %s", g.Holder, plural(g.Count, "object", "objects"))
	s.field("whose", g.Owner, "")
	if len(g.Objects) == 1 || g.Kind != stuck.Contents {
		s.field("waits for", g.Waits, "")
	}
	s.field("since", moment(&g.Since), "")
	s.field("to do", g.Do, kubectl.Calm)
	t := kubectl.Table{Header: []string{"NAMESPACE", "OBJECT", "FOR", "BLOCKED BY", "REASON", "STUCK FOR", "SAYS"}}
	if wide {
		t.Header = append(t.Header, "FINALIZERS", "UID")
	}
	shown := g.Objects
	if !wide {
		shown = shown[:min(len(shown), shownOfGroup)]
	}
	for _, o := range shown {
		t.Add(cellsOf(o, r.At, g.Kind == stuck.Contents && len(g.Objects) > 1, wide)...)
	}
	if err := indented(s.out, t, s.palette); err != nil {
		return err
	}
	if more := len(g.Objects) - len(shown); more > 0 {
		kubectl.Fprintf(s.out, "  and %d more: -o wide shows them\n", more)
	}
	return nil
}

// cellsOf is an object's row. Conditions of namespaces are said for each where the
// group has several.
func cellsOf(o stuck.Object, now metav1.Time, conditions, wide bool) []kubectl.Cell {
	var reason, since, says, blocked string
	if h := o.Holder; h != nil {
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
	row := []kubectl.Cell{
		{Text: o.Namespace}, {Text: o.Resource + "/" + o.Name}, {Text: duration.HumanDuration(now.Sub(o.Since.Time)), Color: kubectl.Unsure},
		{Text: blocked}, {Text: reason}, {Text: since}, {Text: oneLine(says), Color: kubectl.Bad},
	}
	if wide {
		row = append(row, kubectl.Cell{Text: strings.Join(o.Finalizers, ",")}, kubectl.Cell{Text: string(o.UID)})
	}
	return row
}
