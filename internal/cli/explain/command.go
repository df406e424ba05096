package explain

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/internal/cli/entries"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/history"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/operator/record"
)

const long = `Show why an object was deleted, or why it still exists: the state of its owners, its finalizers and their owners, what each
finalizer waits for, the last error, the next retry, and the operator's records about the object.

The operator is queried through a port-forward to each of its pods, or at the URL of --endpoint. It requires permission to get
/debug/gc/* and the objects that the records are about, and authenticates clients by bearer token: if the kubeconfig has none,
set --token or --token-of. If it has an archive, its records are from before its restarts, too; with --archive they are read from
the store instead, without an operator. Replicas and types that can't be read are listed, and the rest is shown anyway.`

type options struct {
	*kubectl.Flags
	archive entries.Flags
	uid     string
}

// Command returns the command gleaner explain.
func Command() *cobra.Command {
	o := &options{Flags: kubectl.NewFlags("json", "yaml")}
	cmd := &cobra.Command{
		Use:   "explain KIND/NAME | --uid UID",
		Short: "Show why an object was deleted, or why it still exists",
		Long:  long,
		Example: `  gleaner explain deployment/web -n shop
  gleaner explain pvc data-0 -n shop -o yaml
  gleaner explain configmap/settings -n shop     # a deleted object
  gleaner explain --uid 0f3c8d1e-…               # a deleted object whose name only the operator has recorded
  gleaner explain configmap/settings -n shop --archive s3://backups/gleaner   # without an operator`,
		ValidArgsFunction: o.CompleteTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(args); err != nil {
				return err
			}
			return o.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.AddTo(cmd)
	o.archive.AddTo(cmd.Flags(), false)
	cmd.Flags().StringVar(&o.uid, "uid", "", "`UID` of the object: for a deleted object whose name was reused or is unknown")
	return cmd
}

func (o *options) validate(args []string) error {
	if err := errors.Join(o.Validate(), o.archive.Validate()); err != nil {
		return err
	}
	if len(args) == 0 && o.uid != "" {
		return nil
	}
	_, _, err := kubectl.ParseTarget(args)
	return err
}

func (o *options) run(ctx context.Context, args []string, out, errOut io.Writer) error {
	config, err := o.Config()
	if err != nil {
		return err
	}
	config.WarningHandlerWithContext = rest.NoWarnings{} // of types that are old: all are listed
	var d printer.Step
	over := d.Show(errOut)
	defer over()
	q, err := o.query(ctx, config, args)
	if err != nil {
		return err
	}
	q.Progress = d.Set
	e, err := Explain(ctx, q)
	over()
	if err != nil {
		return err
	}
	if o.Output != "" {
		return printer.Write(out, o.Output, struct {
			printer.Document `json:",inline"`
			Explanation
		}{printer.DocumentOf("Explanation"), e})
	}
	return showExplanation(out, printer.PaletteFor(out), e)
}

// query finds the object to explain. A missing object is not an error.
func (o *options) query(ctx context.Context, config *rest.Config, args []string) (Query, error) {
	q := Query{Config: config, Records: o.reader(config), UID: types.UID(o.uid)}
	var err error
	if q.Gleaner, err = finalizers.NewClient(config); err != nil {
		return q, err
	}
	var kind string
	if len(args) == 0 {
		object, err := o.objectByUID(ctx, config)
		if err != nil {
			return q, err
		}
		kind, q.Name, q.Namespace = object.Kind, object.Name, object.Namespace
		if gvk := schema.FromAPIVersionAndKind(object.APIVersion, object.Kind); gvk.Group != "" {
			kind += "." + gvk.Version + "." + gvk.Group
		}
	} else if kind, q.Name, err = kubectl.ParseTarget(args); err == nil {
		q.Namespace, err = o.ResolveNamespace()
	}
	if err != nil {
		return q, err
	}
	return q, q.find(ctx, o.Mapping, kind)
}

// QueryOf returns a query for the object that words name. A missing object is not an error.
func QueryOf(ctx context.Context, config *rest.Config, mapping func(string) (*meta.RESTMapping, error), kind, namespace, name string) (Query, error) {
	q := Query{Config: config, Namespace: namespace, Name: name}
	var err error
	if q.Gleaner, err = finalizers.NewClient(config); err != nil {
		return q, err
	}
	return q, q.find(ctx, mapping, kind)
}

// find sets the type and the object.
func (q *Query) find(ctx context.Context, mappingOf func(string) (*meta.RESTMapping, error), kind string) error {
	mapping, err := mappingOf(kind)
	if err != nil {
		return err
	}
	q.Kind, q.Resource = mapping.GroupVersionKind, mapping.Resource.GroupResource()
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		q.Namespace = ""
	}
	objects, err := dynamic.NewForConfig(q.Config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	object, err := objects.Resource(mapping.Resource).Namespace(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		q.Object = object
	case !apierrors.IsNotFound(err):
		return err
	}
	return nil
}

// reader returns what reads records: of the operator, or with --archive of its store.
func (o *options) reader(config *rest.Config) func(context.Context, replicas.Selection) (replicas.Records, error) {
	return func(ctx context.Context, s replicas.Selection) (replicas.Records, error) {
		return history.Read(ctx, &o.archive, func() (*rest.Config, error) { return config, nil }, s)
	}
}

// objectByUID finds the object with the UID in the records.
func (o *options) objectByUID(ctx context.Context, config *rest.Config) (record.Object, error) {
	found, err := o.reader(config)(ctx, replicas.Selection{Query: record.Query{Object: record.ObjectQuery{UID: types.UID(o.uid)}}})
	if err != nil {
		return record.Object{}, err
	}
	if len(found.Entries) != 0 {
		return found.Entries[0].Object, nil
	}
	why := "no replica of the operator was found"
	switch {
	case len(found.Unreachable) != 0:
		why = fmt.Sprintf("%s could not be queried: %s", found.Unreachable[0].Replica, found.Unreachable[0].Reason)
	case o.archive.Location() != "":
		why = "the archive has no record of it"
	case len(found.Queried) != 0:
		why = "the operator has no record of it that you are allowed to see"
	}
	return record.Object{}, fmt.Errorf("find the object with UID %s: %s; if you know its name, write KIND/NAME", o.uid, why)
}
