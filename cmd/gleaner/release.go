package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/release"
	"github.com/gleaner-dev/gleaner/policies"
)

type releaseOptions struct {
	kubeconfig string
	namespace  string
	policy     string
	finalizer  string
	live       bool
	all        bool
	yes        bool
}

const releaseLong = `Take finalizers off objects, with or without the operator.

A hold (the finalizer gleaner.dev/hold) keeps an object that is deleted until a policy has decided what becomes of
its dependents. Released, an object that is being deleted goes as Kubernetes would have it. A Finalizer or
ClusterFinalizer, and the module that it asks, have gleaner.dev/in-use in the same way, until its own removal is dealt
with. These two are what is taken off if nothing else is said.

With --all, in all namespaces, Gleaner's admission objects are removed first: the webhook configurations and admission
policies that would put holds back, and that have the API server ask an operator that is gone. While the operator runs
they stay: they go by themselves with the last policy and finalizer.

A running operator puts the hold of a policy in force back onto objects that are not being deleted: delete the
policy first, or write mode: Monitor into it.

With --finalizer, another finalizer is taken off, whoever serves it, and objects that are being deleted go although
it was not dealt with: what it was to clean up is left behind. finalizer/NAME and clusterfinalizer/NAME take off the
one of that resource, and free the resource as well if it is being deleted itself. Objects that are not being deleted
keep it, unless it is of such a resource and --live is given.`

func releaseCommand() *cobra.Command {
	var o releaseOptions
	cmd := &cobra.Command{
		Use:   "release [RESOURCE/NAME] [--policy [NAMESPACE/]NAME] [--finalizer NAME] [--all]",
		Short: "Take Gleaner's holds, or a finalizer, off objects",
		Long:  releaseLong,
		Example: `  gleaner release deployments.apps/web -n shop
  gleaner release --policy keep-data          # what a ClusterGCPolicy holds
  gleaner release --policy shop/keep-data     # what a GCPolicy holds
  gleaner release --all --yes                 # before uninstalling

  gleaner release buckets.example.com/data -n shop --finalizer example.com/bucket
  gleaner release --all -n shop --finalizer example.com/bucket
  gleaner release finalizer/remove-bucket -n shop --live
  gleaner release clusterfinalizer/remove-bucket`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(args); err != nil {
				return usageError{err}
			}
			return o.run(cmd.Context(), args, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&o.kubeconfig, "kubeconfig", "", "kubeconfig `file`; by default $KUBECONFIG or ~/.kube/config")
	flags.StringVarP(&o.namespace, "namespace", "n", "", "of the object; with --all, the only one that is looked through")
	flags.StringVar(&o.policy, "policy", "", "release what this policy governs: `[NAMESPACE/]NAME`")
	flags.StringVar(&o.finalizer, "finalizer", "", "take off this `FINALIZER` in place of Gleaner's holds")
	flags.BoolVar(&o.live, "live", false, "take it off objects, too, that are not being deleted; for finalizers of a Finalizer or ClusterFinalizer")
	flags.BoolVar(&o.all, "all", false, "release everything")
	flags.BoolVar(&o.yes, "yes", false, "don't ask")
	return cmd
}

func (o *releaseOptions) validate(args []string) error {
	given := 0
	for _, is := range []bool{len(args) == 1, o.policy != "", o.all} {
		if is {
			given++
		}
	}
	if given != 1 {
		return errors.New("say what to release: RESOURCE/NAME, --policy or --all, and only one of them")
	}
	if len(args) == 1 {
		if resource, name, ok := strings.Cut(args[0], "/"); !ok || resource == "" || name == "" || strings.Contains(name, "/") {
			return fmt.Errorf("can't read %q: write RESOURCE/NAME, such as configmaps/settings or deployments.apps/web", args[0])
		}
	}
	return o.validateFinalizer(args)
}

func (o *releaseOptions) run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	config, err := (&options{kubeconfig: o.kubeconfig}).config()
	if err != nil {
		return err
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{} // about types that are deprecated, which it looks through as well
	if err := reach(ctx, config); err != nil {
		return err
	}
	r := &release.Releaser{}
	if r.Metadata, err = metadata.NewForConfig(config); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if r.Discovery, err = discovery.NewDiscoveryClientForConfig(config); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	if r.Leases, err = coordination.NewForConfig(config); err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	c, err := gleanerClient(config)
	if err != nil {
		return err
	}
	if _, _, named := o.resource(args); named || o.finalizer != "" {
		t, err := o.target(ctx, c, args)
		if err != nil {
			return err
		}
		return o.releaseFinalizer(ctx, r, t, in, out)
	}
	where, err := o.where(ctx, c, args)
	if err != nil {
		return err
	}
	return o.release(ctx, r, where, in, out)
}

// gleanerClient reads Gleaner's own kinds.
func gleanerClient(config *rest.Config) (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("make client: %w", err)
	}
	return c, nil
}

// where says what is to be looked through.
func (o *releaseOptions) where(ctx context.Context, c client.Client, args []string) (release.Where, error) {
	where := release.Where{Namespace: o.namespace}
	switch {
	case o.all:
		return where, nil
	case len(args) == 1:
		text, name, _ := strings.Cut(args[0], "/")
		where.Name, where.Select = name, only(schema.ParseGroupResource(text))
		return where, nil
	default:
		return o.wherePolicy(ctx, c)
	}
}

func only(wanted schema.GroupResource) func(schema.GroupResource) bool {
	return func(r schema.GroupResource) bool { return r == wanted }
}

// wherePolicy is what the policy's rules select. Its conditions don't count here:
// what they left out has no hold because of it.
func (o *releaseOptions) wherePolicy(ctx context.Context, c client.Client) (release.Where, error) {
	namespace, name, namespaced := strings.Cut(o.policy, "/")
	var spec v1alpha1.GCPolicySpec
	var err error
	if namespaced {
		var p v1alpha1.GCPolicy
		err = c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &p)
		spec = p.Spec
	} else {
		var p v1alpha1.ClusterGCPolicy
		err = c.Get(ctx, client.ObjectKey{Name: o.policy}, &p)
		spec, namespace = p.Spec, o.namespace
	}
	if err != nil {
		return release.Where{}, fmt.Errorf("read the policy: %w; of a GCPolicy write NAMESPACE/NAME; of one that is gone, release its objects or --all", err)
	}
	where := release.Where{Namespace: namespace, Finalizers: []string{graph.Hold}}
	if spec.ObjectSelector != nil {
		where.Labels = metav1.FormatLabelSelector(spec.ObjectSelector)
	}
	var p policies.Policy
	for _, r := range spec.Resources {
		p.Rules = append(p.Rules, policies.Rule{Groups: r.APIGroups, Resources: r.Resources})
	}
	where.Select = p.Selects
	return where, nil
}
