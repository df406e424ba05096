package main

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

	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/explain"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/ask/replicas"
	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/operator/record"
)

const explainLong = `Say why an object was deleted, or why it is still here: how its owners stand, who holds it by which finalizer, what that
waits for, what went wrong last, when it is tried again, and what the operator has recorded of it.

The operator is asked by a port-forward to each of its pods, or with --endpoint at a URL. It shows records to whoever may get
/debug/gc/* and the objects that they are about, and knows clients by bearer tokens: where the kubeconfig has none, give
--token or --token-of. What can't be reached or read is told, and the rest is answered nevertheless.`

type explainOptions struct {
	*kubectl.Flags
	operator operatorFlags
	uid      string
}

func explainCommand() *cobra.Command {
	o := &explainOptions{Flags: kubectl.NewFlags("json", "yaml")}
	cmd := &cobra.Command{
		Use:   "explain KIND/NAME | --uid UID",
		Short: "Say why an object was deleted, or why it is still here",
		Long:  explainLong,
		Example: `  gleaner explain deployment/web -n shop
  gleaner explain pvc data-0 -n shop -o yaml
  gleaner explain configmap/settings -n shop     # one that is gone
  gleaner explain --uid 0f3c8d1e-…               # one whose name is known to the operator alone`,
		ValidArgsFunction: o.CompleteTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(args); err != nil {
				return err
			}
			return o.run(cmd.Context(), args, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	o.AddTo(cmd)
	o.operator.addTo(cmd.Flags())
	cmd.Flags().StringVar(&o.uid, "uid", "", "the object's `UID`: of one that is gone, where others had the name, or whose name is not known")
	return cmd
}

func (o *explainOptions) validate(args []string) error {
	if err := errors.Join(o.Validate(), o.operator.validate()); err != nil {
		return err
	}
	if len(args) == 0 && o.uid != "" {
		return nil
	}
	_, _, err := kubectl.Named(args)
	return err
}

func (o *explainOptions) run(ctx context.Context, args []string, out, errOut io.Writer) error {
	config, err := o.Config()
	if err != nil {
		return err
	}
	config.WarningHandlerWithContext = rest.NoWarnings{} // of types that are old: all are listed
	var d doing
	over := d.shown(errOut)
	defer over()
	q, err := o.question(ctx, config, args)
	if err != nil {
		return err
	}
	q.Told = d.set
	e, err := explain.Ask(ctx, q)
	over()
	if err != nil {
		return err
	}
	if o.Output != "" {
		return kubectl.Write(out, o.Output, struct {
			kubectl.Document `json:",inline"`
			explain.Explanation
		}{kubectl.DocumentOf("Explanation"), e})
	}
	return showExplanation(out, kubectl.PaletteFor(out), e)
}

// question finds what is asked about. That there is no such object is no error.
func (o *explainOptions) question(ctx context.Context, config *rest.Config, args []string) (explain.Question, error) {
	q := explain.Question{Config: config, Operator: o.operator.where(config), UID: types.UID(o.uid)}
	var err error
	if q.Gleaner, err = gleanerClient(config); err != nil {
		return q, err
	}
	var kind string
	if len(args) == 0 {
		object, err := o.named(ctx, config)
		if err != nil {
			return q, err
		}
		kind, q.Name, q.Namespace = object.Kind, object.Name, object.Namespace
		if gvk := schema.FromAPIVersionAndKind(object.APIVersion, object.Kind); gvk.Group != "" {
			kind += "." + gvk.Version + "." + gvk.Group
		}
	} else if kind, q.Name, err = kubectl.Named(args); err == nil {
		q.Namespace, err = o.InNamespace()
	}
	if err != nil {
		return q, err
	}
	mapping, err := o.Mapping(kind)
	if err != nil {
		return q, err
	}
	q.Kind, q.Resource = mapping.GroupVersionKind, mapping.Resource.GroupResource()
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		q.Namespace = ""
	}
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		return q, fmt.Errorf("make client: %w", err)
	}
	object, err := objects.Resource(mapping.Resource).Namespace(q.Namespace).Get(ctx, q.Name, metav1.GetOptions{})
	switch {
	case err == nil:
		q.Object = object
	case !apierrors.IsNotFound(err):
		return q, err
	}
	return q, nil
}

// named finds the name that goes with a UID in the operator's records.
func (o *explainOptions) named(ctx context.Context, config *rest.Config) (record.Object, error) {
	all, err := replicas.Find(ctx, o.operator.where(config))
	if err != nil {
		return record.Object{}, err
	}
	defer replicas.Close(all)
	found := replicas.RecordsOf(ctx, all, replicas.About{UID: types.UID(o.uid)})
	if len(found.Entries) != 0 {
		return found.Entries[0].Object, nil
	}
	why := "no replica of the operator was found that could know it"
	switch {
	case len(found.Missing) != 0:
		why = fmt.Sprintf("%s could not be asked: %s", found.Missing[0].Replica, found.Missing[0].Why)
	case len(found.Asked) != 0:
		why = "the operator has no record of it that you may see"
	}
	return record.Object{}, fmt.Errorf("find what has the UID %s: %s; if you know its name, write KIND/NAME", o.uid, why)
}
