package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/cmd/gleaner/kubectl"
	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/release"
	"github.com/gleaner-dev/gleaner/policies"
)

type releaseOptions struct {
	*kubectl.Flags
	policy    string
	finalizer string
	live      bool
	all       bool
	yes       bool
}

const releaseLong = `Take finalizers off objects, with or without the operator. What would be taken off is listed first, and asked about.

A hold (the finalizer gleaner.dev/hold) keeps an object that is deleted until a policy has decided what becomes of
its dependents. Released, an object that is being deleted goes as Kubernetes would have it. A Finalizer or
ClusterFinalizer, and the module that it asks, have gleaner.dev/in-use in the same way, until its own removal is dealt
with. These two are what is taken off if nothing else is said.

An object that is named is looked for in one namespace: that of -n, or the kubeconfig's. With -A it is looked for in all,
and has to be the only one. --policy and --all look through all namespaces, and what is in none, unless -n names one.

With --all, in all namespaces, Gleaner's admission objects are removed first: the webhook configurations and admission
policies that would put holds back, and that have the API server ask an operator that is gone. While the operator runs
they stay: they go by themselves with the last policy and finalizer.

A running operator puts the hold of a policy in force back onto objects that are not being deleted: delete the
policy first, or write mode: Monitor into it.

With --finalizer, another finalizer is taken off, whoever serves it, and objects that are being deleted go although
it was not dealt with: what it was to clean up is left behind. finalizer/NAME and clusterfinalizer/NAME take off the
one of that resource, and free the resource as well if it is being deleted itself. Objects that are not being deleted
keep it, unless it is of such a resource and --live is given.

Exit codes: 0, also if there was nothing to take off, or the answer was no; 1 if something went wrong, as where there is
no such object; 2 for a command line that makes no sense.`

func releaseCommand() *cobra.Command {
	o := &releaseOptions{Flags: kubectl.NewFlags()}
	cmd := &cobra.Command{
		Use:   "release KIND/NAME | --policy [NAMESPACE/]NAME | --all",
		Short: "Take Gleaner's holds, or a finalizer, off objects",
		Long:  releaseLong,
		Example: `  gleaner release deploy/web -n shop
  gleaner release --policy keep-data          # what a ClusterGCPolicy holds
  gleaner release --policy shop/keep-data     # what a GCPolicy holds
  gleaner release --all --yes                 # before uninstalling

  gleaner release buckets.example.com/data -n shop --finalizer example.com/bucket
  gleaner release --all -n shop --finalizer example.com/bucket
  gleaner release finalizer/remove-bucket -n shop --live
  gleaner release clusterfinalizer/remove-bucket`,
		ValidArgsFunction: o.CompleteTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(args); err != nil {
				return err
			}
			s := &releasing{releaseOptions: o, args: args, in: cmd.InOrStdin(), out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr()}
			return s.run(cmd.Context())
		},
	}
	o.AddTo(cmd)
	o.AddAllNamespaces(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.policy, "policy", "", "release what this policy governs: `[NAMESPACE/]NAME`")
	flags.StringVar(&o.finalizer, "finalizer", "", "take off this `FINALIZER` in place of Gleaner's holds")
	flags.BoolVar(&o.live, "live", false, "take it off objects, too, that are not being deleted; for finalizers of a Finalizer or ClusterFinalizer")
	flags.BoolVar(&o.all, "all", false, "release everything, in all namespaces or in that of -n")
	flags.BoolVar(&o.yes, "yes", false, "don't ask")
	o.CompleteFlag(cmd, "policy", v1alpha1.GroupVersion.WithResource("clustergcpolicies"))
	return cmd
}

func (o *releaseOptions) validate(args []string) error {
	if err := o.Validate(); err != nil {
		return err
	}
	given := 0
	for _, is := range []bool{len(args) != 0, o.policy != "", o.all} {
		if is {
			given++
		}
	}
	if given != 1 {
		return kubectl.Usage("say what to release: KIND/NAME, --policy or --all, and only one of them")
	}
	if len(args) != 0 {
		if _, _, err := kubectl.Named(args); err != nil {
			return err
		}
	}
	if err := o.validateFinalizer(args); err != nil {
		return kubectl.Usage("%w", err)
	}
	return nil
}

// releasing is one run of the command.
type releasing struct {
	*releaseOptions
	args    []string
	in      io.Reader
	out     io.Writer
	errOut  io.Writer
	gleaner client.Reader
	*release.Releaser
}

func (s *releasing) run(ctx context.Context) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	if _, _, named := s.resource(s.args); named || s.finalizer != "" {
		t, err := s.target(ctx)
		if err != nil {
			return err
		}
		return s.releaseFinalizer(ctx, t)
	}
	where, err := s.where(ctx)
	if err != nil {
		return err
	}
	return s.releaseHolds(ctx, where)
}

func (s *releasing) connect(ctx context.Context) error {
	config, err := s.Config()
	if err != nil {
		return err
	}
	config.WarningHandlerWithContext = rest.NoWarnings{} // of types that are old: all are listed
	if err := reach(ctx, config); err != nil {
		return err
	}
	s.Releaser = &release.Releaser{}
	if s.Metadata, err = metadata.NewForConfig(config); err == nil {
		s.Discovery, err = discovery.NewDiscoveryClientForConfig(config)
	}
	if err == nil {
		s.Leases, err = coordination.NewForConfig(config)
	}
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	s.gleaner, err = gleanerClient(config)
	return err
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
func (s *releasing) where(ctx context.Context) (release.Where, error) {
	switch {
	case s.all:
		return release.Where{Namespace: *s.Namespace}, nil
	case s.policy != "":
		return s.wherePolicy(ctx)
	default:
		return s.whereNamed(ctx)
	}
}

// whereNamed is the object that the arguments name, which has to be there.
func (s *releasing) whereNamed(ctx context.Context) (release.Where, error) {
	kind, name, err := kubectl.Named(s.args)
	if err != nil {
		return release.Where{}, err
	}
	mapping, err := s.Mapping(kind)
	if err != nil {
		return release.Where{}, err
	}
	where := release.Where{Name: name, Select: only(mapping.Resource.GroupResource())}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if s.AllNamespaces {
			return where, nil
		}
		if where.Namespace, err = s.InNamespace(); err != nil {
			return where, err
		}
	}
	_, err = s.Metadata.Resource(mapping.Resource).Namespace(where.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && where.Namespace != "" {
		err = fmt.Errorf("%w in namespace %s: name another with -n, or look in all with -A", err, where.Namespace)
	}
	return where, err
}

func only(wanted schema.GroupResource) func(schema.GroupResource) bool {
	return func(r schema.GroupResource) bool { return r == wanted }
}

// wherePolicy is what the policy's rules select. Its conditions don't count here:
// what they left out has no hold because of it.
func (s *releasing) wherePolicy(ctx context.Context) (release.Where, error) {
	namespace, name, namespaced := strings.Cut(s.policy, "/")
	var spec v1alpha1.GCPolicySpec
	var err error
	if namespaced {
		var p v1alpha1.GCPolicy
		err = s.gleaner.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, &p)
		spec = p.Spec
	} else {
		var p v1alpha1.ClusterGCPolicy
		err = s.gleaner.Get(ctx, client.ObjectKey{Name: s.policy}, &p)
		spec, namespace = p.Spec, *s.Namespace
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
