package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/release"
	"github.com/gleaner-dev/gleaner/policies"
)

type releaseOptions struct {
	kubeconfig string
	namespace  string
	policy     string
	all        bool
	yes        bool
}

const releaseLong = `Take Gleaner's holds off objects, with or without the operator.

A hold (the finalizer gleaner.dev/hold) keeps an object that is deleted until a policy has decided what becomes of
its dependents. Released, an object that is being deleted goes as Kubernetes would have it.

A running operator puts the hold of a policy in force back onto objects that are not being deleted: delete the
policy first, or write mode: Monitor into it.`

func releaseCommand() *cobra.Command {
	var o releaseOptions
	cmd := &cobra.Command{
		Use:   "release [RESOURCE/NAME] [--policy [NAMESPACE/]NAME] [--all]",
		Short: "Take Gleaner's holds off objects",
		Long:  releaseLong,
		Example: `  gleaner release deployments.apps/web -n shop
  gleaner release --policy keep-data          # what a ClusterGCPolicy holds
  gleaner release --policy shop/keep-data     # what a GCPolicy holds
  gleaner release --all --yes                 # before uninstalling`,
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
	return nil
}

func (o *releaseOptions) run(ctx context.Context, args []string, in io.Reader, out io.Writer) error {
	config, err := (&options{kubeconfig: o.kubeconfig}).config()
	if err != nil {
		return err
	}
	config.QPS = -1
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
	where, err := o.where(ctx, config, args)
	if err != nil {
		return err
	}
	return o.release(ctx, r, where, in, out)
}

// where says what is to be looked through.
func (o *releaseOptions) where(ctx context.Context, config *rest.Config, args []string) (release.Where, error) {
	where := release.Where{Namespace: o.namespace}
	switch {
	case o.all:
		return where, nil
	case len(args) == 1:
		text, name, _ := strings.Cut(args[0], "/")
		wanted := schema.ParseGroupResource(text)
		where.Name = name
		where.Select = func(r schema.GroupResource) bool { return r == wanted }
		return where, nil
	default:
		return o.wherePolicy(ctx, config)
	}
}

// wherePolicy is what the policy's rules select. Its conditions don't count here:
// what they left out has no hold because of it.
func (o *releaseOptions) wherePolicy(ctx context.Context, config *rest.Config) (release.Where, error) {
	scheme := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(scheme); err != nil {
		return release.Where{}, err
	}
	c, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		return release.Where{}, fmt.Errorf("make client: %w", err)
	}
	namespace, name, namespaced := strings.Cut(o.policy, "/")
	var spec v1alpha1.GCPolicySpec
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
	where := release.Where{Namespace: namespace}
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

// quiet is how many sweeps in a row have to find nothing: one that finds nothing
// may have looked before somebody else's write.
const quiet = 2

// mostRounds is how often holds may turn up again before it is given up.
const mostRounds = 5

// sweepPause is between two sweeps.
const sweepPause = 2 * time.Second

func (o *releaseOptions) release(ctx context.Context, r *release.Releaser, where release.Where, in io.Reader, out io.Writer) error {
	held, err := r.Find(ctx, where)
	if len(held) == 0 {
		if err == nil {
			fmt.Fprintln(out, "Nothing there has a hold.")
		}
		return err
	}
	show(out, held)
	if err != nil {
		fmt.Fprintf(out, "Not everything could be looked through: %v\n", err)
	}
	if !o.yes && !confirmed(in, out, len(held)) {
		fmt.Fprintln(out, "Nothing was released.")
		return nil
	}
	released, err := releaseAll(ctx, r, held, out)
	rounds := 0
	for calm := 0; o.all && err == nil && calm < quiet; calm++ {
		if err = sleep(ctx, sweepPause); err != nil {
			break
		}
		if held, err = r.Find(ctx, where); err != nil || len(held) == 0 {
			continue
		}
		if rounds++; rounds > mostRounds {
			err = fmt.Errorf("%d objects have a hold again: stop the operator, or delete the policies that it enforces, and try again", len(held))
			break
		}
		more := 0
		more, err = releaseAll(ctx, r, held, out)
		released, calm = released+more, -1
	}
	fmt.Fprintf(out, "Released %d.\n", released)
	return err
}

func releaseAll(ctx context.Context, r *release.Releaser, held []release.Held, out io.Writer) (released int, err error) {
	for _, h := range held {
		done, failed := r.Release(ctx, h)
		if failed != nil {
			fmt.Fprintf(out, "%v\n", failed)
			err = errors.Join(err, failed)
		}
		if done {
			released++
		}
	}
	return released, err
}

func show(out io.Writer, held []release.Held) {
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "NAMESPACE\tOBJECT\tSTATE\tOTHER FINALIZERS")
	for _, h := range held {
		state := "held"
		if h.Terminating {
			state = "being deleted: goes once it is released"
			if len(h.Others) != 0 {
				state = "being deleted: waits for others, too"
			}
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", h.Namespace, h, state, strings.Join(h.Others, ","))
	}
	_ = table.Flush() // nobody is left to be told
}

// confirmed asks whether to go on.
func confirmed(in io.Reader, out io.Writer, n int) bool {
	fmt.Fprintf(out, "Release %d? [y/N] ", n)
	line, _ := bufio.NewReader(in).ReadString('\n')
	fmt.Fprintln(out)
	answer := strings.ToLower(strings.TrimSpace(line))
	return answer == "y" || answer == "yes"
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
