// Package release implements gleaner release.
package release

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	coordination "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/release"
	"github.com/gleaner-dev/gleaner/policies"
)

type options struct {
	*kubectl.Flags
	policy    string
	finalizer string
	live      bool
	all       bool
	yes       bool

	stopOperator string // NAMESPACE/NAME of its Deployment
}

const long = `Remove finalizers from objects, with or without the operator. The finalizers are listed first, and removed after confirmation.

A hold (the finalizer gleaner.dev/hold) keeps a deleted object until a policy has decided what happens to its dependents.
Without the hold, Kubernetes' normal garbage collection applies. The finalizer gleaner.dev/in-use keeps a deleted Finalizer or
ClusterFinalizer, and its module, until its own removal is handled. The finalizers of an ArchivePolicy or ClusterArchivePolicy
keep a deleted object until it is archived; without them, it is deleted and cannot be restored. By default, all of these are
removed.

A named object is looked up in the namespace of -n, or the kubeconfig's. With -A, it is looked up in all namespaces, and must be
unique. --policy and --all apply to all namespaces and to cluster-scoped objects, unless -n is set.

With --all in all namespaces, Gleaner's admission objects are removed first: webhook configurations and admission policies that
would add holds again, or make the API server call an operator that no longer exists. While the operator is running, they are
kept: the operator removes them after the last policy and finalizer are deleted.

With --stop-operator, the operator's Deployment is scaled to zero first, and everything is removed, as before uninstalling. This is
refused while there are Finalizers or ClusterFinalizers, or objects being deleted that wait for a policy or for the archive.

A running operator adds the holds of policies in force again to objects that are not being deleted: delete the policy first, or
set mode: Monitor.

With --finalizer, another finalizer is removed, whichever controller owns it. Objects that are being deleted then disappear
without the cleanup of that finalizer: external resources may be left behind. finalizer/NAME, clusterfinalizer/NAME,
archivepolicy/NAME and clusterarchivepolicy/NAME remove the finalizer of that resource, and release the resource itself if it is
being deleted. Objects that are not being deleted keep
their finalizer, unless it belongs to such a resource and --live is set.

Exit codes: 0 on success, also if there was nothing to remove or the answer was no; 1 for an error, such as an object that
does not exist; 2 for an invalid command line.`

// Command returns the command gleaner release.
func Command() *cobra.Command {
	o := &options{Flags: kubectl.NewFlags()}
	cmd := &cobra.Command{
		Use:   "release KIND/NAME | --policy [NAMESPACE/]NAME | --all",
		Short: "Remove Gleaner's holds or another finalizer from objects",
		Long:  long,
		Example: `  gleaner release deploy/web -n shop
  gleaner release --policy keep-data          # the objects that a ClusterGCPolicy holds
  gleaner release --policy shop/keep-data     # the objects that a GCPolicy holds
  gleaner release --all --yes                 # before uninstalling
  gleaner release --all --stop-operator gleaner-system/gleaner

  gleaner release buckets.example.com/data -n shop --finalizer example.com/bucket
  gleaner release --all -n shop --finalizer example.com/bucket
  gleaner release finalizer/remove-bucket -n shop --live
  gleaner release clusterfinalizer/remove-bucket`,
		ValidArgsFunction: o.CompleteTarget,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := o.validate(args); err != nil {
				return err
			}
			s := &releaseRun{options: o, args: args, in: cmd.InOrStdin(), out: cmd.OutOrStdout(), errOut: cmd.ErrOrStderr()}
			return s.run(cmd.Context())
		},
	}
	o.AddTo(cmd)
	o.AddAllNamespaces(cmd)
	flags := cmd.Flags()
	flags.StringVar(&o.policy, "policy", "", "release the objects that this policy governs: `[NAMESPACE/]NAME`")
	flags.StringVar(&o.finalizer, "finalizer", "", "`finalizer` to remove, instead of Gleaner's holds")
	flags.BoolVar(&o.live, "live", false, "also remove the finalizer from objects that are not being deleted; for finalizers of a Finalizer or ClusterFinalizer")
	flags.BoolVar(&o.all, "all", false, "release all objects, in all namespaces or in that of -n")
	flags.BoolVar(&o.yes, "yes", false, "don't ask for confirmation")
	flags.StringVar(&o.stopOperator, "stop-operator", "", "with --all, first scale the Deployment of the operator to zero: `NAMESPACE/NAME`")
	o.CompleteFlag(cmd, "policy", v1alpha1.GroupVersion.WithResource("clustergcpolicies"))
	return cmd
}

func (o *options) validate(args []string) error {
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
		return exit.Usagef("specify exactly one of KIND/NAME, --policy and --all")
	}
	if len(args) != 0 {
		if _, _, err := kubectl.ParseTarget(args); err != nil {
			return err
		}
	}
	if err := o.validateFinalizer(args); err != nil {
		return exit.Usagef("%w", err)
	}
	if o.stopOperator != "" {
		_, err := o.deployment()
		return err
	}
	return nil
}

// releaseRun is one run of the command.
type releaseRun struct {
	*options
	args    []string
	in      io.Reader
	out     io.Writer
	errOut  io.Writer
	gleaner client.Reader
	*release.Releaser
}

func (s *releaseRun) prompt() printer.Prompt { return printer.Prompt{In: s.in, Out: s.out, Yes: s.yes} }

func (s *releaseRun) run(ctx context.Context) error {
	if err := s.connect(ctx); err != nil {
		return err
	}
	if _, _, named := s.namedResource(s.args); named || s.finalizer != "" {
		t, err := s.target(ctx)
		if err != nil {
			return err
		}
		return s.releaseFinalizer(ctx, t)
	}
	if s.stopOperator != "" {
		if stopped, err := s.stop(ctx); err != nil || !stopped {
			return err
		}
	}
	where, err := s.selection(ctx)
	if err != nil {
		return err
	}
	return s.releaseHolds(ctx, where)
}

func (s *releaseRun) connect(ctx context.Context) error {
	config, err := s.Config()
	if err != nil {
		return err
	}
	config.WarningHandlerWithContext = rest.NoWarnings{} // of types that are old: all are listed
	if err := kubectl.CheckConnection(ctx, config); err != nil {
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
	s.gleaner, err = finalizers.NewClient(config)
	return err
}

// selection returns the objects to search.
func (s *releaseRun) selection(ctx context.Context) (release.Selection, error) {
	switch {
	case s.all:
		return release.Selection{Namespace: *s.Namespace}, nil
	case s.policy != "":
		return s.selectPolicy(ctx)
	default:
		return s.selectNamed(ctx)
	}
}

// selectNamed returns the object that the arguments name, which must exist.
func (s *releaseRun) selectNamed(ctx context.Context) (release.Selection, error) {
	kind, name, err := kubectl.ParseTarget(s.args)
	if err != nil {
		return release.Selection{}, err
	}
	mapping, err := s.Mapping(kind)
	if err != nil {
		return release.Selection{}, err
	}
	where := release.Selection{Name: name, SelectResource: matchResource(mapping.Resource.GroupResource())}
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if s.AllNamespaces {
			return where, nil
		}
		if where.Namespace, err = s.ResolveNamespace(); err != nil {
			return where, err
		}
	}
	_, err = s.Metadata.Resource(mapping.Resource).Namespace(where.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) && where.Namespace != "" {
		err = fmt.Errorf("%w in namespace %s: set another with -n, or search all with -A", err, where.Namespace)
	}
	return where, err
}

func matchResource(wanted schema.GroupResource) func(schema.GroupResource) bool {
	return func(r schema.GroupResource) bool { return r == wanted }
}

// selectPolicy returns the objects that the policy's rules select. Match conditions are
// ignored: objects that they exclude have no hold of this policy.
func (s *releaseRun) selectPolicy(ctx context.Context) (release.Selection, error) {
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
		return release.Selection{}, fmt.Errorf("read the policy: %w; write NAMESPACE/NAME for a GCPolicy; for a deleted policy, release objects by name or with --all", err)
	}
	where := release.Selection{Namespace: namespace, Finalizers: []string{graph.Hold}}
	if spec.ObjectSelector != nil {
		where.Labels = metav1.FormatLabelSelector(spec.ObjectSelector)
	}
	var p policies.Policy
	for _, r := range spec.Resources {
		p.Rules = append(p.Rules, policies.Rule{Groups: r.APIGroups, Resources: r.Resources})
	}
	where.SelectResource = p.Selects
	return where, nil
}
