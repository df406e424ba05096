// Package pause implements gleaner pause and gleaner resume, which create and delete Pauses and
// ClusterPauses.
package pause

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/operator/livelist"
	"github.com/gleaner-dev/gleaner/operator/pausestore"
)

// scopeFlags are the flags that say what is paused.
type scopeFlags struct {
	*kubectl.Flags
	policy    string
	finalizer string
}

func (f *scopeFlags) addTo(cmd *cobra.Command) {
	f.AddTo(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.policy, "policy", "", "only what this policy decides: `[NAMESPACE/]NAME`; without NAMESPACE, a ClusterGCPolicy")
	flags.StringVar(&f.finalizer, "finalizer", "", "only what this finalizer requests: `[NAMESPACE/]NAME`; without NAMESPACE, a ClusterFinalizer")
	f.CompleteFlag(cmd, "policy", v1alpha1.GroupVersion.WithResource("clustergcpolicies"))
	f.CompleteFlag(cmd, "finalizer", v1alpha1.GroupVersion.WithResource("clusterfinalizers"))
}

// scope is what a pause is limited to.
type scope struct {
	namespace string                 // "": the whole cluster
	policy    *v1alpha1.PausedPolicy // nil: whatever decides
}

// scope returns what the flags say.
func (f *scopeFlags) scope() (scope, error) {
	if err := f.Validate(); err != nil {
		return scope{}, err
	}
	s := scope{namespace: *f.Namespace}
	switch {
	case f.policy != "" && f.finalizer != "":
		return s, exit.Usagef("--policy and --finalizer: use one of them, or run the command twice")
	case f.policy != "":
		return s, s.limitTo("--policy", f.policy, v1alpha1.KindGCPolicy, v1alpha1.KindClusterGCPolicy)
	case f.finalizer != "":
		return s, s.limitTo("--finalizer", f.finalizer, v1alpha1.KindFinalizer, v1alpha1.KindClusterFinalizer)
	}
	return s, nil
}

// limitTo limits the scope to a policy, in the namespace that is named or in the cluster.
func (s *scope) limitTo(flag, text, kind, clusterKind string) error {
	parts := strings.Split(text, "/")
	if slices.Contains(parts, "") || len(parts) > 2 {
		return exit.Usagef("%s=%s: write NAME for a %s, or NAMESPACE/NAME for a %s", flag, text, clusterKind, kind)
	}
	if len(parts) == 1 {
		s.policy = &v1alpha1.PausedPolicy{Kind: clusterKind, Name: parts[0]}
		return nil
	}
	if s.namespace != "" && s.namespace != parts[0] {
		return exit.Usagef("%s=%s: a %s of namespace %s decides nothing in namespace %s: omit -n", flag, text, kind, parts[0], s.namespace)
	}
	s.policy = &v1alpha1.PausedPolicy{Kind: kind, Name: parts[1]}
	if s.namespace == "" {
		s.namespace = parts[0] // who may pause what is in a namespace need not have permissions for the cluster
	}
	return nil
}

// name returns the name of the Pause or ClusterPause that the commands create for the scope.
func (s scope) name() string {
	if s.policy == nil {
		return "all"
	}
	return strings.ToLower(s.policy.Kind) + "." + s.policy.Name
}

// object returns a new Pause or ClusterPause.
func (s scope) object(spec v1alpha1.PauseSpec) pausestore.Resource {
	spec.Policy = s.policy
	if s.namespace == "" {
		p := &v1alpha1.ClusterPause{Spec: spec}
		p.Name = s.name()
		return pausestore.Resource{Object: p, Spec: &p.Spec, Status: &p.Status}
	}
	p := &v1alpha1.Pause{Spec: spec}
	p.Namespace, p.Name = s.namespace, s.name()
	return pausestore.Resource{Object: p, Spec: &p.Spec, Status: &p.Status}
}

// covers reports whether a pause has exactly the scope.
func (s scope) covers(r pausestore.Resource) bool {
	want := s.object(v1alpha1.PauseSpec{}).Pause()
	got := r.Pause()
	return got.Namespace == want.Namespace && got.Policy == want.Policy
}

// String describes the scope.
func (s scope) String() string {
	what, where := "everything", "in the whole cluster"
	if s.policy != nil {
		what = "what " + pausestore.PolicyName(*s.policy, s.namespace) + " decides"
	}
	if s.namespace != "" {
		where = "in namespace " + s.namespace
	}
	return what + " " + where
}

// args returns the flags of the scope.
func (f *scopeFlags) args() (flags string) {
	for _, flag := range []struct{ name, value string }{{"-n", *f.Namespace}, {"--policy", f.policy}, {"--finalizer", f.finalizer}} {
		if flag.value != "" {
			flags += " " + flag.name + " " + flag.value
		}
	}
	return flags
}

// nameOf returns the name of a Pause or ClusterPause as kubectl prints it, with its namespace.
func nameOf(r pausestore.Resource) string {
	if r.GetNamespace() == "" {
		return "clusterpause.gleaner.dev/" + r.GetName()
	}
	return "pause.gleaner.dev/" + r.GetName() + " in namespace " + r.GetNamespace()
}

func (f *scopeFlags) connect(ctx context.Context) (client.Client, error) {
	config, err := f.Config()
	if err != nil {
		return nil, err
	}
	if err := kubectl.CheckConnection(ctx, config); err != nil {
		return nil, err
	}
	return finalizers.NewClient(config)
}

// explain says what to do about an error of the API server.
func explain(err error) error {
	if meta.IsNoMatchError(err) {
		return errors.New("the cluster has no pauses: install their types with kubectl apply -k config/components/safety")
	}
	return err
}

// readAll returns all pauses.
func readAll(ctx context.Context, from client.Reader) ([]pausestore.Resource, error) {
	all, _, err := pausestore.Read(ctx, from, livelist.Unserved)
	if err != nil {
		return nil, fmt.Errorf("read pauses: %w", err)
	}
	return all, nil
}

// readNamespace returns the Pauses of a namespace.
func readNamespace(ctx context.Context, from client.Reader, namespace string) ([]pausestore.Resource, error) {
	var list v1alpha1.PauseList
	if err := from.List(ctx, &list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("read pauses: %w", err)
	}
	all := make([]pausestore.Resource, len(list.Items))
	for i := range list.Items {
		p := &list.Items[i]
		all[i] = pausestore.Resource{Object: p, Spec: &p.Spec, Status: &p.Status}
	}
	return all, nil
}
