// Package rbac implements gleaner rbac.
package rbac

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"

	"github.com/gleaner-dev/gleaner/internal/cli/arguments"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/modes"
	"github.com/gleaner-dev/gleaner/internal/cli/permissions"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
)

// exitPermissionsMissing is the exit code of rbac --check if permissions are missing.
const exitPermissionsMissing = 3

const long = `Print the minimum roles and bindings, as YAML, that the operator needs for the existing policies and finalizers; or with --check,
list the permissions that its service account is missing.

In primary mode, the operator needs permission to delete any object. In companion mode, it writes only to objects that policies
and finalizers in Enforce mode select, so update the roles when these change. While objects still have a hold or a finalizer of
a deleted policy or finalizer, keep the old roles, or remove the holds and finalizers first: gleaner release --all.

The dependents for which a module makes exceptions, or which it has deleted in order, can't be known in advance: list them
with --exceptions. Intents of a finalizer's module are carried out as the service account that the finalizer names, which
needs its own permissions.

Exit codes: 0 on success; 1 for an error; 2 for an invalid command line; 3 if --check found missing permissions.`

type options struct {
	*kubectl.Flags
	collector  string
	account    string
	exceptions []string
	check      bool

	assumed bool // default installation, since the operator has no pods to read the setup from
}

// Command returns the command gleaner rbac.
func Command() *cobra.Command {
	o := &options{Flags: kubectl.NewFlags()}
	cmd := &cobra.Command{
		Use:   "rbac [--collector primary|companion] [--check]",
		Short: "Print the roles that the operator needs, or check for missing permissions",
		Long:  long,
		Example: `  gleaner rbac | kubectl apply -f -
  gleaner rbac --collector companion -f policies.yaml    # without a cluster
  gleaner rbac --check`,
		Args: arguments.None,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.AddTo(cmd)
	o.AddFiles(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.collector, "collector", "", "`mode` of the operator: primary or companion; by default that of its pods, else primary")
	flags.StringVar(&o.account, "service-account", "", "service account of the operator, `NAMESPACE/NAME`; by default that of its pods, else gleaner-system/gleaner")
	flags.StringSliceVar(&o.exceptions, "exceptions", nil, "`resources` of dependents for which policy modules make exceptions, or which they have deleted in order, such as replicasets.apps,...; companion mode only")
	flags.BoolVar(&o.check, "check", false, "list the missing permissions of the service account")
	return cmd
}

func (o *options) validate() error {
	namespace, name, slash := strings.Cut(o.account, "/")
	switch {
	case o.collector != "" && o.collector != modes.Primary && o.collector != modes.Companion:
		return exit.Usagef("--collector=%s: use primary or companion, or leave it out", o.collector)
	case o.account != "" && (!slash || namespace == "" || name == "" || strings.Contains(name, "/")):
		return exit.Usagef("--service-account=%s: write NAMESPACE/NAME, such as gleaner-system/gleaner", o.account)
	case o.check && len(o.Files) != 0:
		return exit.Usagef("--check needs a cluster, and --filename uses none: use one of them")
	}
	for _, text := range o.exceptions {
		if !kubectl.ResourceName.MatchString(text) {
			return exit.Usagef("--exceptions: invalid resource %q; write its plural name and group, such as pods or replicasets.apps", text)
		}
	}
	return o.Validate()
}

func (o *options) run(ctx context.Context, out io.Writer) error {
	setup, book, err := o.read(ctx)
	if err != nil {
		return err
	}
	needed := permissions.Required(setup, book)
	if !o.check {
		permissions.Write(out, setup, needed)
		return nil
	}
	config, err := o.Config()
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	missing, err := permissions.Check(ctx, kube, setup, needed)
	if err != nil {
		return err
	}
	if o.assumed {
		printer.Fprintln(out, "The operator has no pods, so the default installation is assumed; set --collector and --service-account otherwise.")
	}
	return showMissing(printer.NewSection(out, printer.PaletteFor(out)), setup, missing)
}

func showMissing(s printer.Section, setup permissions.Setup, missing []permissions.MissingPermission) error {
	account := setup.Namespace + "/" + setup.ServiceAccount
	if len(missing) == 0 {
		printer.Fprintf(s.Out, "The service account %s has all permissions that the operator needs.\n", account)
		return nil
	}
	printer.Fprintf(s.Out, "The service account %s is missing %s:\n\n", account, printer.Count(len(missing), "permission", "permissions"))
	t := printer.Table{Header: []string{"PERMISSION", "REASON"}}
	for _, m := range permissions.MergeVerbs(missing) {
		t.Add(printer.Cell{Text: m.String(), Color: printer.Bad}, printer.Cell{Text: m.Reason})
	}
	if err := printer.PrintIndented(s.Out, t, s.Palette); err != nil {
		return err
	}
	printer.Fprintf(s.Out, "\nTo grant them: gleaner rbac%s | kubectl apply -f -\n", setupFlags(setup))
	return exit.Error{Code: exitPermissionsMissing}
}

// setupFlags returns the flags of gleaner rbac for the setup.
func setupFlags(s permissions.Setup) string {
	if s.Companion {
		return " --collector companion"
	}
	return ""
}

// read returns the operator's setup, and the policies and finalizers.
func (o *options) read(ctx context.Context) (permissions.Setup, *finalizers.Resources, error) {
	s := permissions.SetupOf(nil)
	if len(o.Files) != 0 {
		o.override(&s)
		objects, err := input.LoadResources(ctx, o.Files)
		if err != nil {
			return s, nil, err
		}
		book, err := finalizers.FromObjects(objects)
		return s, book, err
	}
	config, err := o.Config()
	if err != nil {
		return s, nil, err
	}
	if err := o.readSetup(ctx, &s, replicas.Options{Config: config}); err != nil {
		return s, nil, err
	}
	o.override(&s)
	mapper, err := o.ToRESTMapper()
	if err != nil {
		return s, nil, fmt.Errorf("discover types: %w", err)
	}
	s.Resource = resourceBy(mapper)
	client, err := finalizers.NewClient(config)
	if err != nil {
		return s, nil, err
	}
	book := finalizers.Read(ctx, client)
	if len(book.Unread) != 0 {
		return s, nil, errors.New("read policies and finalizers: " + strings.Join(book.Unread, "; "))
	}
	return s, book, nil
}

func resourceBy(mapper meta.RESTMapper) func(schema.GroupKind) (schema.GroupResource, bool) {
	return func(kind schema.GroupKind) (schema.GroupResource, bool) {
		mapping, err := mapper.RESTMapping(kind)
		if err != nil {
			return schema.GroupResource{}, false
		}
		return mapping.Resource.GroupResource(), true
	}
}

// override applies the flags.
func (o *options) override(s *permissions.Setup) {
	if o.collector != "" {
		s.Companion = o.collector == modes.Companion
	}
	for _, text := range o.exceptions {
		s.Exceptions = append(s.Exceptions, schema.ParseGroupResource(text))
	}
	if o.account != "" {
		s.Namespace, s.ServiceAccount, _ = strings.Cut(o.account, "/")
	}
}

// readSetup reads the setup from the operator's pods, if there are any.
func (o *options) readSetup(ctx context.Context, s *permissions.Setup, where replicas.Options) error {
	if o.collector != "" && o.account != "" {
		return nil
	}
	pods, err := replicas.Pods(ctx, where)
	if err != nil {
		return fmt.Errorf("%w; to do without pods, set --collector and --service-account", err)
	}
	*s, o.assumed = permissions.SetupOf(pods), len(pods) == 0
	return nil
}
