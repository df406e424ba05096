// Package retention implements gleaner preview retention: what retention policies remove now, what they remove next, and why the rest is
// kept. It writes nothing.
package retention

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/resources"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/arguments"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/operator/bulkread"
	"github.com/gleaner-dev/gleaner/operator/livelist"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/retainer/preview"
	"github.com/gleaner-dev/gleaner/operator/survey"
)

// options are the flags.
type options struct {
	*kubectl.Flags
	policies []string
	kept     bool
	nodes    bool
	operator string
}

const long = `Show which objects retention policies remove now, which they remove next if nothing changes, and why, without removing anything.

The policies of the namespace and of the cluster are evaluated on the objects that exist now, in mode Monitor as well as Enforce, with
the operator's code. With -f, policies from files are evaluated as if they were applied. Then the GCPolicies and ClusterGCPolicies with
the hook retain are evaluated on what is removed now. The outcome is unknown if one of them can't be evaluated from here, or you are not
allowed to read what it reads.

For unreferencedFor, the time counts from now, since only the operator knows when it saw the last reference: the status of a policy shows
when its objects are removed.`

// Command returns the command gleaner preview retention.
func Command() *cobra.Command {
	o := options{Flags: kubectl.NewFlags("json", "yaml", "wide", "name")}
	cmd := &cobra.Command{
		Use:   "retention",
		Short: "Show what retention policies remove now, what they remove next, and why",
		Long:  long + "\n\nExit codes: 0 on success; 1 for an error; 2 for an invalid command line.",
		Example: `  gleaner preview retention -n ci
  gleaner preview retention -A --policy unused-settings
  gleaner preview retention -n ci -f last-jobs.yaml --kept
  gleaner preview retention -n ci --policy ci/last-jobs -o name
  gleaner preview retention --nodes`,
		Args: arguments.RejectUnknownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.Validate(); err != nil {
				return err
			}
			if o.nodes {
				return o.runNodes(cmd.Context(), cmd.OutOrStdout())
			}
			return o.run(cmd.Context(), cmd.OutOrStdout())
		},
	}
	o.AddTo(cmd)
	o.AddAllNamespaces(cmd)
	flags := cmd.Flags()
	flags.StringArrayVarP(&o.Files, "filename", "f", nil, "`file` with retention policies that are evaluated as if they were applied; - is standard input")
	flags.StringArrayVar(&o.policies, "policy", nil, "show only what this `policy` removes or keeps: NAMESPACE/NAME, or NAME of a ClusterRetentionPolicy; by default all")
	flags.BoolVar(&o.kept, "kept", false, "list objects that are kept as well, with the reason")
	flags.BoolVar(&o.nodes, "nodes", false, "show images and containers of nodes instead of objects, as the NodeRetentions of the nodes say; at most ten of each node")
	flags.StringVar(&o.operator, "gleaner-namespace", "gleaner-system", "`namespace` of the operator, in which nothing is removed")
	return cmd
}

func (o *options) run(ctx context.Context, out io.Writer) error {
	files := o.Files
	o.Files = nil // the namespace is that of the kubeconfig
	namespace, err := o.ResolveNamespace()
	if err != nil {
		return err
	}
	config, err := o.Config()
	if err != nil {
		return err
	}
	all, unread, err := o.load(ctx, config, namespace, files)
	if err != nil {
		return err
	}
	if err := o.checkPolicies(all); err != nil {
		return err
	}
	types, err := survey.Discover(ctx, survey.Options{Config: config, Now: time.Now})
	if err != nil {
		return err
	}
	lister, err := bulkread.NewLiveLister(config)
	if err != nil {
		return err
	}
	reads := namespace
	if o.AllNamespaces || o.readsAll(all) {
		reads = ""
	}
	now := time.Now()
	options := preview.Options{
		Policies: all, Lister: lister, Types: types.Types, Absent: types.Absent, Namespace: reads, Operator: o.operator, Now: now,
	}
	hook, err := readHook(ctx, config, types, reads)
	switch {
	case apierrors.IsForbidden(err):
		unread = append(unread, fmt.Sprintf("policies with the hook retain, which may keep objects: %s", err))
	case err != nil:
		return err
	case hook != nil:
		defer hook.close()
		options.KeptByHook = hook.keptBy
	}
	report, err := preview.Evaluate(ctx, options)
	if err != nil {
		return err
	}
	report.Unread = append(unread, report.Unread...)
	d := o.document(all, report, namespace)
	return o.write(out, d, now)
}

// readsAll reports whether a policy of the cluster counts objects: then what it removes depends on all of them.
func (o *options) readsAll(all []*policyset.Retention) bool {
	return slices.ContainsFunc(all, func(p *policyset.Retention) bool {
		return p.Key.Namespace == "" && (p.Spec.KeepLast != nil || p.Spec.MaxTotal != nil)
	})
}

// load reads the policies of the namespace, or all, and of the cluster; those of files replace them.
func (o *options) load(ctx context.Context, config *rest.Config, namespace string, files []string) (all []*policyset.Retention, unread []string, err error) {
	var found policyset.Resources
	from, err := policyset.NewClient(config)
	if err != nil {
		return nil, nil, err
	}
	found.Resources, err = resources.Read(func(kind string, into resources.List) error {
		if !strings.HasSuffix(kind, v1alpha1.KindRetentionPolicy) {
			return nil
		}
		_, err := livelist.List(ctx, from, livelist.Unserved, kind, into)
		if apierrors.IsForbidden(err) && kind == v1alpha1.KindRetentionPolicy && !o.AllNamespaces {
			_, err = livelist.List(ctx, inNamespace{from, namespace}, livelist.Unserved, kind, into)
		}
		if apierrors.IsForbidden(err) {
			unread = append(unread, fmt.Sprintf("%s, which may keep objects: %s", kind, err))
			return nil
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if err := addFiles(ctx, &found, files, namespace); err != nil {
		return nil, nil, err
	}
	if !o.AllNamespaces {
		found.Retentions = slices.DeleteFunc(found.Retentions, func(r resources.Retention) bool {
			return r.Meta.Namespace != "" && r.Meta.Namespace != namespace
		})
	}
	builder, err := policyset.NewBuilder(policyset.Rules{}, nil)
	if err != nil {
		return nil, nil, err
	}
	all = builder.Build(found, nil).Retentions
	for _, p := range all {
		if !p.Problem.IsZero() {
			unread = append(unread, fmt.Sprintf("%s, which keeps what it may select: %s", p.Policy, p.Problem.Message))
		}
	}
	return all, unread, nil
}

// inNamespace lists the objects of one namespace, for users who may not list those of others.
type inNamespace struct {
	client.Reader
	namespace string
}

// List implements client.Reader.
func (n inNamespace) List(ctx context.Context, into client.ObjectList, options ...client.ListOption) error {
	return n.Reader.List(ctx, into, append(options, client.InNamespace(n.namespace))...)
}

// addFiles adds the policies of files.
func addFiles(ctx context.Context, to *policyset.Resources, files []string, namespace string) error {
	if len(files) == 0 {
		return nil
	}
	objects, err := input.LoadResources(ctx, files)
	if err != nil {
		return err
	}
	for _, o := range objects {
		r, err := retentionOf(o, namespace)
		if err != nil {
			return exit.Usagef("--filename=%s: %s", strings.Join(files, ","), err)
		}
		r.Meta.UID = "" // it is another object than one of this name in the cluster
		to.Retentions = slices.DeleteFunc(to.Retentions, func(other resources.Retention) bool {
			return other.Meta.Namespace == r.Meta.Namespace && other.Meta.Name == r.Meta.Name
		})
		to.Retentions = append(to.Retentions, r)
	}
	return nil
}

// retentionOf returns a retention policy, in the default namespace if it says none.
func retentionOf(o *unstructured.Unstructured, namespace string) (r resources.Retention, err error) {
	convert := runtime.DefaultUnstructuredConverter.FromUnstructured
	switch o.GroupVersionKind() {
	case v1alpha1.GroupVersion.WithKind(v1alpha1.KindRetentionPolicy):
		p := &v1alpha1.RetentionPolicy{}
		err = convert(o.Object, p)
		p.Namespace = cmp.Or(p.Namespace, namespace)
		return resources.Retention{Object: p, Kind: o.GetKind(), Meta: p.ObjectMeta, Spec: p.Spec}, err
	case v1alpha1.GroupVersion.WithKind(v1alpha1.KindClusterRetentionPolicy):
		p := &v1alpha1.ClusterRetentionPolicy{}
		err = convert(o.Object, p)
		return resources.Retention{Object: p, Kind: o.GetKind(), Meta: p.ObjectMeta, Spec: p.Spec}, err
	case v1alpha1.GroupVersion.WithKind(v1alpha1.KindNodeRetentionPolicy):
		return r, fmt.Errorf("NodeRetentionPolicy %s: only Gleaner on a node knows its images; apply it with mode: Monitor, and run gleaner preview retention --nodes", o.GetName())
	default:
		return r, fmt.Errorf("%s %s is not a retention policy: use RetentionPolicy or ClusterRetentionPolicy", o.GetKind(), o.GetName())
	}
}

// checkPolicies checks that the policies to show exist.
func (o *options) checkPolicies(all []*policyset.Retention) error {
	for _, name := range o.policies {
		if !slices.ContainsFunc(all, func(p *policyset.Retention) bool { return nameOf(p) == name }) {
			var known []string
			for _, p := range all {
				known = append(known, nameOf(p))
			}
			if len(known) == 0 {
				return exit.Usagef("--policy=%s: there are no retention policies here: use -A for those of all namespaces, or -f", name)
			}
			return exit.Usagef("--policy=%s: not found: use one of %s", name, strings.Join(known, ", "))
		}
	}
	return nil
}

func nameOf(p *policyset.Retention) string {
	if p.Key.Namespace == "" {
		return p.Key.Name
	}
	return p.Key.Namespace + "/" + p.Key.Name
}

// shows reports whether what a policy says is shown.
func (o *options) shows(p *policyset.Retention) bool {
	return len(o.policies) == 0 || slices.Contains(o.policies, nameOf(p))
}
