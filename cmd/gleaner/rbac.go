package main

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

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/replicas"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/rights"
	holder "github.com/gleaner-dev/gleaner/cmd/gleaner/ask/whose"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
)

// exitMissing is the exit code of rbac --check where rights are missing.
const exitMissing = 3

const rbacLong = `Print the roles and bindings, as YAML, that the operator needs for the policies and finalizers that are there, and no more
than that; or say, with --check, which of these rights its service account does not have.

The only collector of a cluster has to be able to delete anything. Beside another one it writes to what policies and finalizers
in mode Enforce select, and to nothing else. So print the roles again when those have changed; and as long as objects may
still have a hold or a finalizer of one that is gone, keep the old roles, or take that off: gleaner release --all.

Which dependents a module makes exceptions of can't be known beforehand: name them with --exceptions. What a finalizer's
module asks for is done as the service account that the finalizer names, which needs rights of its own.

Exit codes: 0; 1 if something went wrong; 2 for a command line that makes no sense; 3 if --check found rights missing.`

type rbacOptions struct {
	*kubectl.Flags
	collector  string
	account    string
	exceptions []string
	check      bool

	assumed bool // that it is as it is installed by default, since no pod of the operator tells
}

func rbacCommand() *cobra.Command {
	o := &rbacOptions{Flags: kubectl.NewFlags()}
	cmd := &cobra.Command{
		Use:   "rbac [--collector primary|companion] [--check]",
		Short: "Print the roles that the operator needs, or say which rights it is missing",
		Long:  rbacLong,
		Example: `  gleaner rbac | kubectl apply -f -
  gleaner rbac --collector companion -f policies.yaml    # without a cluster
  gleaner rbac --check`,
		Args: noArguments,
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
	flags.StringVar(&o.collector, "collector", "", "how it runs: primary or companion; by default as the operator's pods do, else primary")
	flags.StringVar(&o.account, "service-account", "", "the operator's, as `NAMESPACE/NAME`; by default that of its pods, else gleaner-system/gleaner")
	flags.StringSliceVar(&o.exceptions, "exceptions", nil, "`resources` of dependents of which modules of policies make exceptions, as replicasets.apps,...; for a companion")
	flags.BoolVar(&o.check, "check", false, "print what is missing")
	return cmd
}

func (o *rbacOptions) validate() error {
	namespace, name, slash := strings.Cut(o.account, "/")
	switch {
	case o.collector != "" && o.collector != primary && o.collector != companion:
		return kubectl.Usage("--collector=%s: use primary or companion, or leave it out", o.collector)
	case o.account != "" && (!slash || namespace == "" || name == "" || strings.Contains(name, "/")):
		return kubectl.Usage("--service-account=%s: write NAMESPACE/NAME, such as gleaner-system/gleaner", o.account)
	case o.check && len(o.Files) != 0:
		return kubectl.Usage("--check asks a cluster, and --filename asks none: use one of them")
	}
	for _, text := range o.exceptions {
		if !resourceName.MatchString(text) {
			return kubectl.Usage("--exceptions: %q is no resource; write its plural name and group, as in pods or replicasets.apps", text)
		}
	}
	return o.Validate()
}

func (o *rbacOptions) run(ctx context.Context, out io.Writer) error {
	setup, book, err := o.read(ctx)
	if err != nil {
		return err
	}
	needed := rights.Needed(setup, book)
	if !o.check {
		rights.Write(out, setup, needed)
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
	missing, err := rights.Check(ctx, kube, setup, needed)
	if err != nil {
		return err
	}
	if o.assumed {
		kubectl.Fprintln(out, "The operator has no pods, so this is of an operator as it is installed by default; --collector and --service-account name another.")
	}
	return showMissing(section{out, kubectl.PaletteFor(out)}, setup, missing)
}

func showMissing(s section, setup rights.Setup, missing []rights.Missing) error {
	account := setup.Namespace + "/" + setup.Account
	if len(missing) == 0 {
		kubectl.Fprintf(s.out, "The service account %s has all rights that the operator needs.\n", account)
		return nil
	}
	kubectl.Fprintf(s.out, "The service account %s is missing %s:\n\n", account, plural(len(missing), "right", "rights"))
	t := kubectl.Table{Header: []string{"RIGHT", "WHY IT IS NEEDED"}}
	for _, m := range rights.Fold(missing) {
		t.Add(kubectl.Cell{Text: m.String(), Color: kubectl.Bad}, kubectl.Cell{Text: m.Why})
	}
	if err := indented(s.out, t, s.palette); err != nil {
		return err
	}
	kubectl.Fprintf(s.out, "\nTo give them: gleaner rbac%s | kubectl apply -f -\n", asFlags(setup))
	return kubectl.Exit{Code: exitMissing}
}

// asFlags are the flags that make the same setup.
func asFlags(s rights.Setup) string {
	if s.Companion {
		return " --collector companion"
	}
	return ""
}

// read finds out how the operator runs, and what policies and finalizers there are.
func (o *rbacOptions) read(ctx context.Context) (rights.Setup, *holder.Book, error) {
	s := rights.SetupOf(nil)
	if len(o.Files) != 0 {
		o.override(&s)
		objects, err := loadResources(ctx, o.Files)
		if err != nil {
			return s, nil, err
		}
		book, err := holder.Of(objects)
		return s, book, err
	}
	config, err := o.Config()
	if err != nil {
		return s, nil, err
	}
	if err := o.running(ctx, &s, replicas.Where{Config: config}); err != nil {
		return s, nil, err
	}
	o.override(&s)
	mapper, err := o.ToRESTMapper()
	if err != nil {
		return s, nil, fmt.Errorf("discover types: %w", err)
	}
	s.Resource = resourceBy(mapper)
	client, err := gleanerClient(config)
	if err != nil {
		return s, nil, err
	}
	book := holder.Read(ctx, client)
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

// override does as the flags say, whatever was found.
func (o *rbacOptions) override(s *rights.Setup) {
	if o.collector != "" {
		s.Companion = o.collector == companion
	}
	for _, text := range o.exceptions {
		s.Exceptions = append(s.Exceptions, schema.ParseGroupResource(text))
	}
	if o.account != "" {
		s.Namespace, s.Account, _ = strings.Cut(o.account, "/")
	}
}

// running reads from the operator's pods how it runs, if there are any.
func (o *rbacOptions) running(ctx context.Context, s *rights.Setup, where replicas.Where) error {
	if o.collector != "" && o.account != "" {
		return nil
	}
	pods, err := replicas.Pods(ctx, where)
	if err != nil {
		return fmt.Errorf("%w; to go without, give --collector and --service-account", err)
	}
	*s, o.assumed = rights.SetupOf(pods), len(pods) == 0
	return nil
}
