// Package preview implements gleaner preview.
package preview

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/internal/cli/arguments"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/loader"
	"github.com/gleaner-dev/gleaner/internal/cli/modes"
	"github.com/gleaner-dev/gleaner/internal/cli/permissions"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/internal/cli/retention"
	"github.com/gleaner-dev/gleaner/operator/companion"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/keystore"
	"github.com/gleaner-dev/gleaner/operator/preview"
	"github.com/gleaner-dev/gleaner/operator/statekey"
)

// exitLimitExceeded is the exit code of a preview in which more objects would be deleted than
// --fail-over allows.
const exitLimitExceeded = 3

// options are the flags of gleaner preview delete.
type options struct {
	*kubectl.Flags
	cascade   string
	collector string
	modules   []string
	with      []string
	failOver  int
}

// Command returns the command gleaner preview.
func Command() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "preview",
		Short: "Preview changes to a cluster without making them",
		Args:  arguments.RejectUnknownCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(previewDeleteCommand(), retention.Command())
	return cmd
}

const long = `Show which objects would be deleted, kept or left waiting if an object were deleted, and why, without deleting it.

The objects' metadata is read once, and the deletion is simulated on this copy with the operator's code and the policies in
force: for the object, its dependents, the content of a namespace, and so on until nothing changes any more. Policies in
Monitor mode have no effect; their verdicts are shown.

The outcome is unknown if it depends on a type that you are not allowed to read, a module that can't be fetched from here, or
objects that a module reads itself; and for objects with a state annotation, unless you are allowed to read the Secret with the
operator's keys. Such objects may be deleted.

With --with, new or changed policies are previewed as if they were applied, together with the modules and ConfigMaps that they
name. Nothing is written.

With -f, objects, policies and modules are read from files instead of a cluster; use --module for modules from elsewhere.`

func previewDeleteCommand() *cobra.Command {
	o := options{Flags: kubectl.NewFlags("json", "yaml", "wide", "name")}
	cmd := &cobra.Command{
		Use:   "delete KIND/NAME",
		Short: "Show what would be deleted, kept or left waiting if an object were deleted",
		Long: long + "\n\nExit codes: 0 on success; 1 for an error; 2 for an invalid command line; 3 if --fail-over=N is set and more than N objects\n" +
			"would be deleted, now or later, including those with an unknown outcome.",
		Example: "  gleaner preview delete deployment/web -n shop\n" +
			"  gleaner preview delete deployment/web -n shop --with keep-volumes.yaml\n" +
			"  gleaner preview delete ns/shop --fail-over 100\n" +
			"  gleaner preview delete deploy web --cascade=orphan -o yaml\n" +
			"  kubectl get all,cm,secret,pvc -n shop -o yaml | gleaner preview delete deploy/web -f - -f policies.yaml",
		ValidArgsFunction: o.CompleteTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(cmd, args); err != nil {
				return err
			}
			return o.preview(cmd, args)
		},
	}
	o.AddTo(cmd)
	o.AddFiles(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.cascade, "cascade", "background", "`propagation` policy of the deletion, as for kubectl delete: background, foreground or orphan")
	flags.StringVar(&o.collector, "collector", "", "`mode` of Gleaner: primary or companion; detected automatically by default")
	flags.StringArrayVar(&o.modules, "module", nil, "file with the content of a ClusterPolicyModule, `NAME=FILE`, or of a PolicyModule, NAMESPACE/NAME=FILE")
	flags.StringArrayVar(&o.with, "with", nil, "`file` with policies, modules and ConfigMaps to preview as if they were applied to the cluster; - is standard input")
	flags.IntVar(&o.failOver, "fail-over", -1, "exit with 3 if more than this `number` of objects would be deleted; by default unlimited")
	for name, words := range map[string][]string{"cascade": {"background", "foreground", "orphan"}, "collector": {modes.Primary, modes.Companion}} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

var cascades = map[string]metav1.DeletionPropagation{
	"background": metav1.DeletePropagationBackground, "foreground": metav1.DeletePropagationForeground, "orphan": metav1.DeletePropagationOrphan,
}

func (o *options) validate(cmd *cobra.Command, args []string) error {
	if _, _, err := kubectl.ParseTarget(args); err != nil {
		return err
	}
	if _, known := cascades[o.cascade]; !known {
		return exit.Usagef("--cascade=%s: use background, foreground or orphan", o.cascade)
	}
	if o.collector != "" && o.collector != modes.Primary && o.collector != modes.Companion {
		return exit.Usagef("--collector=%s: use %s or %s, or leave it out", o.collector, modes.Primary, modes.Companion)
	}
	if cmd.Flags().Changed("fail-over") && o.failOver < 0 {
		return exit.Usagef("--fail-over=%d: use 0 or more", o.failOver)
	}
	if len(o.with) != 0 && len(o.Files) != 0 {
		return exit.Usagef("--with and -f can't be used together: add the files of --with with -f")
	}
	return o.Validate()
}

// preview runs the preview, prints it, and returns the exit code.
func (o *options) preview(cmd *cobra.Command, args []string) error {
	given, err := loader.ModuleFiles("--module", o.modules)
	if err != nil {
		return err
	}
	namespace, err := o.ResolveNamespace()
	if err != nil {
		return err
	}
	with, err := loadProposals(cmd.Context(), o.with, namespace)
	if err != nil {
		return err
	}
	a, err := input.Read(cmd.Context(), o.Flags, args, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	p, err := simulate(cmd.Context(), a, deletion{targets: []graph.ID{a.TargetID()}, cascade: cascades[o.cascade], modules: given, with: with}, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if o.collector == "" {
		o.collector = detectMode(cmd.Context(), a)
	}
	if o.collector == modes.Companion && o.cascade == "orphan" {
		p.Notes = append(p.Notes, "in companion mode, it depends on timing whether a policy with explicit: Override overrides an explicit Orphan")
	}
	if len(with) != 0 {
		p.Notes = append(p.Notes, withNote(with))
	}
	d := newDocument(a, p)
	d.Collector = o.collector
	switch o.Output {
	case "json", "yaml":
		err = printer.Write(cmd.OutOrStdout(), o.Output, d)
	case "name":
		err = writeDeletions(cmd.OutOrStdout(), d)
	default:
		err = writePreview(cmd.OutOrStdout(), d, o.Output == "wide")
	}
	if err != nil {
		return err
	}
	return o.exitError(d)
}

// deletion is what is simulated.
type deletion struct {
	targets []graph.ID
	cascade metav1.DeletionPropagation
	modules preview.Modules
	with    []*unstructured.Unstructured
}

func simulate(ctx context.Context, a *input.Input, d deletion, errOut io.Writer) (*preview.Preview, error) {
	over := printer.Progress(errOut, func() string { return "Reading policies and simulating" })
	defer over()
	now := time.Now()
	options := preview.Options{Survey: a.Survey, Config: a.Config, Targets: d.targets, Cascade: d.cascade, Now: now}
	var reading *preview.Reading
	reading, options.PoliciesErr = preview.ReadPolicies(ctx, a.Survey, a.Config, d.modules, d.with, now)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if a.Config != nil {
		options.Keys = func(ctx context.Context) (statekey.Keys, error) { return stateKeys(ctx, a.Config) }
	}
	if options.Policies = reading; reading != nil {
		defer reading.Close()
	}
	p, err := preview.Delete(ctx, options)
	if err == nil {
		p.Notes = append(p.Notes, limits(ctx, a, p)...)
	}
	return p, err
}

// stateKeys reads the operator's keys of state annotations, with the permissions of the
// user.
func stateKeys(ctx context.Context, config *rest.Config) (statekey.Keys, error) {
	namespace := permissions.SetupOf(nil).Namespace
	if pods, err := replicas.Pods(ctx, replicas.Options{Config: config}); err == nil && len(pods) != 0 {
		namespace = pods[0].Namespace
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return statekey.Keys{}, fmt.Errorf("make client: %w", err)
	}
	keys, err := keystore.Read(ctx, client, namespace)
	if err != nil {
		return statekey.Keys{}, fmt.Errorf("read Secret %s/%s: %w", namespace, keystore.SecretName, err)
	}
	return keys, nil
}

// detectMode detects the mode of Gleaner. If it can't be detected, primary is assumed; the
// outcome is the same.
func detectMode(ctx context.Context, a *input.Input) string {
	if a.Config == nil {
		return modes.Primary
	}
	client, err := kubernetes.NewForConfig(a.Config)
	if err != nil {
		return modes.Primary
	}
	_, err = client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, companion.ConfigurationName, metav1.GetOptions{})
	if err != nil {
		return modes.Primary
	}
	return modes.Companion
}

// exitError returns the exit code.
func (o *options) exitError(d *deletionPreview) error {
	if o.failOver < 0 {
		return nil
	}
	going := d.Summary.deletions()
	switch {
	case going > o.failOver:
		return exit.Error{Code: exitLimitExceeded, Err: fmt.Errorf("%s would or might be deleted, more than --fail-over=%d", printer.Count(going, "object", "objects"), o.failOver)}
	case len(d.Unread) != 0:
		return exit.Error{Code: exitLimitExceeded, Err: fmt.Errorf("not all types can be read, so more than %d objects might be deleted: see the list of unknown types", o.failOver)}
	}
	return nil
}
