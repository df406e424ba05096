package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/replicas"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/rights"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/operator/keystore"
	"github.com/gleaner-dev/gleaner/operator/modules"
	"github.com/gleaner-dev/gleaner/operator/preview"
	"github.com/gleaner-dev/gleaner/operator/statekey"
	"github.com/gleaner-dev/gleaner/policies/source"
)

// exitTooMany is the exit code of a preview in which more would go than --fail-over
// allows.
const exitTooMany = 3

// previewOptions are the flags of gleaner preview delete.
type previewOptions struct {
	*kubectl.Flags
	cascade   string
	collector string
	modules   []string
	with      []string
	failOver  int
}

func previewCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "preview",
		Short: "Show what would become of a cluster's objects, without changing any",
		Args:  noCommand,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(previewDeleteCommand())
	return cmd
}

const previewLong = `Show what would go, stay or wait if an object were deleted, and why, without deleting it.

The objects' metadata is read once, and the same code decides about the copy that decides in the operator, with the
policies that are in force: what the object owns, what is in it if it is a namespace, and so on until nothing changes
any more. A policy in Monitor changes nothing here, either; what it says is shown.

What can't be known is said to be unknown: what depends on a type that you may not read, a module that can't be had
from here, or what a module reads itself; and objects with a state annotation, unless you may read the Secret with the
operator's keys. It may go.

With --with, policies that are not in the cluster yet, or are there otherwise, are tried on it: they are taken as if they
were applied, with the modules and ConfigMaps that they name, and nothing is written.

With -f it asks no cluster. Policies and modules are then those in the files; one that is elsewhere is given with
--module.`

func previewDeleteCommand() *cobra.Command {
	o := previewOptions{Flags: kubectl.NewFlags("json", "yaml", "wide", "name")}
	cmd := &cobra.Command{
		Use:   "delete KIND/NAME",
		Short: "Show what would go, stay or wait if an object were deleted",
		Long: previewLong + "\n\nIt exits with 3 if --fail-over=N is given and more than N objects would go, at once or later, or might,\n" +
			"as those of which it is not known.",
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
	flags.StringVar(&o.cascade, "cascade", "background", "`how` its dependents go, as for kubectl delete: background, foreground or orphan")
	flags.StringVar(&o.collector, "collector", "", "primary or companion: `how` Gleaner is run; by default as the cluster says")
	flags.StringArrayVar(&o.modules, "module", nil, "`NAME=FILE`: take this file for a PolicyModule or ClusterPolicyModule; of one of a namespace NAMESPACE/NAME=FILE")
	flags.StringArrayVar(&o.with, "with", nil, "take the policies, modules and ConfigMaps of this `file` as if they were applied to the cluster; - is the standard input")
	flags.IntVar(&o.failOver, "fail-over", -1, "exit with 3 if more than this `number` of objects would go")
	for name, words := range map[string][]string{"cascade": {"background", "foreground", "orphan"}, "collector": {primary, companion}} {
		_ = cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(words, cobra.ShellCompDirectiveNoFileComp))
	}
	return cmd
}

var cascades = map[string]metav1.DeletionPropagation{
	"background": metav1.DeletePropagationBackground, "foreground": metav1.DeletePropagationForeground, "orphan": metav1.DeletePropagationOrphan,
}

func (o *previewOptions) validate(cmd *cobra.Command, args []string) error {
	if _, _, err := kubectl.Named(args); err != nil {
		return err
	}
	if _, known := cascades[o.cascade]; !known {
		return kubectl.Usage("--cascade=%s: use background, foreground or orphan", o.cascade)
	}
	if o.collector != "" && o.collector != primary && o.collector != companion {
		return kubectl.Usage("--collector=%s: use %s or %s, or leave it out", o.collector, primary, companion)
	}
	if cmd.Flags().Changed("fail-over") && o.failOver < 0 {
		return kubectl.Usage("--fail-over=%d: use 0 or more", o.failOver)
	}
	if len(o.with) != 0 && len(o.Files) != 0 {
		return kubectl.Usage("--with is for a cluster: give what -f is to have beside the rest with -f, too")
	}
	return o.Validate()
}

// preview asks, shows, and says whether it is too much.
func (o *previewOptions) preview(cmd *cobra.Command, args []string) error {
	given, err := givenModules(o.modules)
	if err != nil {
		return err
	}
	namespace, err := o.InNamespace()
	if err != nil {
		return err
	}
	with, err := proposals(cmd.Context(), o.with, namespace)
	if err != nil {
		return err
	}
	a, err := ask(cmd.Context(), o.Flags, args, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	p, err := o.run(cmd.Context(), a, given, with, cmd.ErrOrStderr())
	if err != nil {
		return err
	}
	if len(with) != 0 {
		p.Notes = append(p.Notes, withNote(with))
	}
	d := o.document(a, p)
	switch o.Output {
	case "json", "yaml":
		err = kubectl.Write(cmd.OutOrStdout(), o.Output, d)
	case "name":
		err = writeGoing(cmd.OutOrStdout(), d)
	default:
		err = writePreview(cmd.OutOrStdout(), d, o.Output == "wide")
	}
	if err != nil {
		return err
	}
	return o.judge(d)
}

func (o *previewOptions) run(ctx context.Context, a *asked, given preview.Modules, with []*unstructured.Unstructured, errOut io.Writer) (*preview.Preview, error) {
	over := kubectl.Progress(errOut, func() string { return "Reading the policies, and deciding" })
	defer over()
	now := time.Now()
	options := preview.Options{Survey: a.survey, Config: a.config, Target: a.id(), Cascade: cascades[o.cascade], Now: now}
	var reading *modules.Reading
	reading, options.Unread = preview.Policies(ctx, a.survey, a.config, given, with, now)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if a.config != nil {
		options.Keys = func(ctx context.Context) (statekey.Keys, error) { return stateKeys(ctx, a.config) }
	}
	if options.Reading = reading; reading != nil {
		defer reading.Close()
	}
	p, err := preview.Delete(ctx, options)
	if err != nil {
		return nil, err
	}
	if o.collector == "" {
		o.collector = collectorOf(ctx, a)
	}
	if o.collector == companion && o.cascade == "orphan" {
		p.Notes = append(p.Notes, "beside another collector it is a matter of who is first whether a policy with explicit: Override overrides an explicit Orphan")
	}
	return p, nil
}

// stateKeys reads the keys that the operator signs state annotations with, with the
// rights of whoever asks.
func stateKeys(ctx context.Context, config *rest.Config) (statekey.Keys, error) {
	namespace := rights.SetupOf(nil).Namespace
	if pods, err := replicas.Pods(ctx, replicas.Where{Config: config}); err == nil && len(pods) != 0 {
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

// collectorOf finds out how Gleaner is run. Where that can't be told it is taken to
// be primary, as what comes of it is the same.
func collectorOf(ctx context.Context, a *asked) string {
	if a.config == nil {
		return primary
	}
	client, err := kubernetes.NewForConfig(a.config)
	if err != nil {
		return primary
	}
	_, err = client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Get(ctx, modules.VetoName, metav1.GetOptions{})
	if err != nil {
		return primary
	}
	return companion
}

// judge makes the exit code.
func (o *previewOptions) judge(d *deletionPreview) error {
	if o.failOver < 0 {
		return nil
	}
	going := d.Summary.going()
	switch {
	case going > o.failOver:
		return kubectl.Exit{Code: exitTooMany, Err: fmt.Errorf("%s would go, or might, and --fail-over=%d", counted(going, "object", "objects"), o.failOver)}
	case len(d.Unread) != 0:
		return kubectl.Exit{Code: exitTooMany, Err: fmt.Errorf("not all types can be read, so that more than %d objects might go: see what could not be known", o.failOver)}
	}
	return nil
}

// givenModules reads the files that --module names.
func givenModules(names []string) (preview.Modules, error) {
	given := preview.Modules{}
	for _, text := range names {
		name, path, ok := strings.Cut(text, "=")
		if !ok || name == "" || path == "" {
			return nil, kubectl.Usage("--module=%s: write NAME=FILE", text)
		}
		rego, err := regoFiles([]string{path})
		if err != nil {
			return nil, usageError{err}
		}
		for _, f := range rego {
			if !strings.HasSuffix(f.Name, "_test.rego") {
				given[name] = append(given[name], source.File{Name: filepath.Base(f.Name), Data: []byte(f.Text)})
			}
		}
		slices.SortFunc(given[name], func(a, b source.File) int { return strings.Compare(a.Name, b.Name) })
		if len(rego) != 0 {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, usageError{err}
		}
		given[name] = []source.File{{Name: filepath.Base(path), Data: data}}
	}
	return given, nil
}
