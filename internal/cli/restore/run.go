package restore

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/printers"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/restore"
)

// servedByKubernetes are finalizers that components of Kubernetes remove again.
var servedByKubernetes = []string{
	"kubernetes.io/pvc-protection", "kubernetes.io/pv-protection", "kubernetes.io/vac-protection", "service.kubernetes.io/load-balancer-cleanup",
	"customresourcecleanup.apiextensions.k8s.io",
}

// restoreTo restores a selection to a cluster: chooses entries, plans, asks, and carries the plan
// out.
func (r *run) restoreTo(ctx context.Context, config *rest.Config, s selection) error {
	config = rest.CopyConfig(config)
	config.WarningHandlerWithContext = rest.NoWarnings{} // of types that are old
	to, err := connect(config)
	if err != nil {
		return err
	}
	var step printer.Step
	over := step.Show(r.errOut)
	defer over()
	report := &Report{}
	if r.dryRun != dryRunNone {
		report.DryRun = r.dryRun
	}
	objects, err := r.readArchive(ctx, config, s, report, step.Set)
	if err != nil {
		return err
	}
	in, err := r.input(ctx, config, to, objects, step.Set)
	if err != nil {
		return err
	}
	plan := restore.Build(in)
	report.addPlan(plan)
	over()
	if done, err := r.approve(report); done {
		return err
	}
	r.execute(ctx, to, plan, report)
	return r.finish(report, len(plan.Steps))
}

// readArchive reads the selected objects. Those that can't be read are conflicts in the report.
func (r *run) readArchive(ctx context.Context, config *rest.Config, s selection, report *Report, doing func(string)) ([]*unstructured.Unstructured, error) {
	doing("Reading the archive")
	identities, err := r.archive.Identities()
	if err != nil {
		return nil, err
	}
	reader, err := r.archive.Open(ctx, func() (*rest.Config, error) { return config, nil })
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	c := &chooser{Reader: reader, identities: identities}
	headers, notes, err := c.choose(ctx, s)
	if err != nil {
		return nil, err
	}
	if len(headers) == 0 && s.since.IsZero() {
		return nil, s.notFound()
	}
	if report.Notes = notes; len(headers) == 0 {
		report.Notes = []string{"Nothing was archived in this period."}
	}
	if c.corrupt != nil {
		report.Notes = append(report.Notes, "Some entries are corrupt and are left out; run gleaner archive verify: "+c.corrupt.Error())
	}
	objects, conflicts, err := c.objects(ctx, headers, func(done int) {
		doing(fmt.Sprintf("Reading the archive: %d of %d objects", done, len(headers)))
	})
	report.Conflicts = conflicts
	return objects, err
}

// input reads what a plan needs to know of the cluster.
func (r *run) input(ctx context.Context, config *rest.Config, from cluster, objects []*unstructured.Unstructured, doing func(string)) (restore.Input, error) {
	in := restore.Input{
		Archived: objects, Namespace: r.toNamespace, DropOwners: r.dropOwners, LeaveUnowned: r.byGleaner, All: r.all, KeepAddresses: r.keepAddresses,
		ServedFinalizers: map[string]struct{}{},
	}
	for _, name := range servedByKubernetes {
		in.ServedFinalizers[name] = struct{}{}
	}
	client, err := finalizers.NewClient(config)
	if err != nil {
		return in, err
	}
	for _, f := range finalizers.Read(ctx, client).Finalizers {
		in.ServedFinalizers[f.Finalizer] = struct{}{}
	}
	keys := restore.Keys(objects, r.toNamespace)
	in.Live, err = from.read(ctx, keys, versionsOf(objects, r.toNamespace), func(done int) {
		doing(fmt.Sprintf("Reading the cluster: %d of %d objects", done, len(keys)))
	})
	return in, err
}

// versionsOf returns the API version of each object, by the key at which it is restored.
func versionsOf(objects []*unstructured.Unstructured, namespace string) map[restore.Key]string {
	versions := map[restore.Key]string{}
	for _, o := range objects {
		key := restore.KeyOf(o)
		if namespace != "" && key.Namespace != "" {
			key.Namespace = namespace
		}
		versions[key] = o.GroupVersionKind().Version
	}
	return versions
}

// approve prints what is to be done. It is done if nothing is left to do, because of conflicts or
// since the answer was no.
func (r *run) approve(report *Report) (done bool, err error) {
	to := r.out
	if r.Output != "" {
		to = r.errOut
	} else {
		report.printPlan(to)
	}
	switch {
	case len(report.Conflicts) != 0:
		err := exit.Error{Code: exitConflicts, Err: errors.New("nothing was restored, because of conflicts")}
		return true, errors.Join(r.document(report), err)
	case r.dryRun == dryRunClient:
		report.Restored = report.Planned
		return true, r.finish(report, len(report.Planned))
	case r.dryRun == dryRunServer, len(report.Planned) == 0:
		return false, nil
	}
	if r.Output != "" && !r.yes {
		report.printPlan(to)
	}
	question := fmt.Sprintf("Restore %s?", printer.Count(len(report.Planned), "object", "objects"))
	confirmed, err := printer.Prompt{In: r.in, Out: to, Yes: r.yes}.Confirm(question, "Nothing was restored.")
	return !confirmed, err
}

// execute carries out a plan.
func (r *run) execute(ctx context.Context, to cluster, plan restore.Plan, report *Report) {
	var step printer.Step
	over := step.Show(r.errOut)
	defer over()
	warned := len(report.Warnings)
	e := &executor{
		cluster: to, dryRun: r.dryRun == dryRunServer, restoreStatus: r.restoreStatus, report: report,
		progress: func(done int, next restore.Key) { step.Set(progressBar(done, len(plan.Steps)) + " " + next.String()) },
		restored: r.printRestored,
	}
	e.run(ctx, plan)
	report.Interrupted = len(report.Remaining) != 0
	over()
	if r.Output == "" {
		printItems(r.out, printer.PaletteFor(r.out), "Warnings:", report.Warnings[warned:])
	}
}

// printRestored prints a line for a restored object, unless a terminal shows the progress.
func (r *run) printRestored(i Item) {
	if r.Output != "" || printers.IsTerminal(printer.Raw(r.errOut)) {
		return
	}
	suffix := ""
	if r.dryRun != dryRunNone {
		suffix = " (" + r.dryRun + " dry run)"
	}
	printer.Fprintf(r.out, "%s%s restored%s\n", where(i), i.object(), printer.Safe(suffix))
}

const barWidth = 30

// progressBar returns a bar with the share that is done.
func progressBar(done, of int) string {
	full := barWidth * done / max(of, 1)
	return fmt.Sprintf("[%s%s] %d of %d", strings.Repeat("=", full), strings.Repeat(" ", barWidth-full), done, of)
}

// finish prints the report, and returns the error for the exit code.
func (r *run) finish(report *Report, planned int) error {
	if err := r.document(report); err != nil {
		return err
	}
	if r.Output == "" {
		report.printResult(r.out, planned)
	}
	if len(report.Failures) != 0 || report.Interrupted {
		return exit.Error{Code: exit.CodeFailure}
	}
	return nil
}

// document prints the report as a document, with -o.
func (r *run) document(report *Report) error {
	if r.Output == "" {
		return nil
	}
	return printer.Write(r.out, r.Output, struct {
		printer.Document `json:",inline"`
		*Report
	}{printer.DocumentOf("RestoreReport"), report})
}
