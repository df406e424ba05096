package replay

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/gleaner-dev/gleaner/internal/cli/entries"
	"github.com/gleaner-dev/gleaner/internal/cli/exit"
	"github.com/gleaner-dev/gleaner/internal/cli/history"
	"github.com/gleaner-dev/gleaner/internal/cli/input"
	"github.com/gleaner-dev/gleaner/internal/cli/kubectl"
	"github.com/gleaner-dev/gleaner/internal/cli/loader"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/records"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/operator/backtest"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/preview"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/survey"
	"github.com/gleaner-dev/gleaner/policies"
)

// exitNotEvaluable is the exit code of --require-evaluable.
const exitNotEvaluable = 3

// backtestOptions are the flags of a backtest.
type backtestOptions struct {
	*kubectl.Flags
	archive entries.Flags

	since            string
	limit            int
	requireEvaluable bool
}

func (o *backtestOptions) addTo(cmd *cobra.Command) {
	o.AddTo(cmd)
	flags := cmd.Flags()
	o.archive.AddTo(flags, false)
	flags.StringArrayVarP(&o.Files, "filename", "f", nil, "`file` with policies, modules and ConfigMaps to backtest as if they were applied; - is standard input")
	flags.StringVar(&o.since, "since", "", "start of the period of the records: a `duration` such as 24h, or a time such as 2026-01-02T03:04:05Z. By default all records")
	flags.IntVar(&o.limit, "limit", 10_000, "maximum `number` of records, the newest ones")
	flags.BoolVar(&o.requireEvaluable, "require-evaluable", false, "exit with 3 if any decision is not evaluable")
}

// offline reports whether no cluster is used: then the files have all policies.
func (o *backtestOptions) offline(args []string) bool {
	return len(args) != 0 || o.archive.Location() != ""
}

// read reads the records: of a file, of the operator, or of an archive.
func (o *backtestOptions) read(ctx context.Context, in io.Reader, args []string, q record.Query) (replicas.Records, error) {
	if len(args) != 0 {
		list, err := records.Read(in, args[0])
		return replicas.Records{Entries: list}, err
	}
	s := replicas.Selection{Query: q, Exchanges: true, Limit: o.limit}
	var err error
	if o.since != "" {
		if s.Since, err = entries.ParseSince(o.since, time.Now()); err != nil {
			return replicas.Records{}, exit.Usagef("--since: %w", err)
		}
	}
	found, err := history.Read(ctx, &o.archive, func() (*rest.Config, error) { return o.Config() }, s)
	switch {
	case err != nil:
		return found, err
	case len(found.Unreachable) != 0:
		return found, errors.New("read records: " + found.Unreachable[0].Replica + ": " + found.Unreachable[0].Reason)
	case len(found.Queried) == 0:
		return found, errors.New("read records: no replica of the operator was found: set --endpoint, or pass --archive LOCATION to read its store directly")
	}
	return found, nil
}

// backtest evaluates policies on records, and reports what would have been different.
func (o *options) backtest(cmd *cobra.Command, args []string) error {
	if o.backtests.limit < 1 {
		return exit.Usagef("--limit=%d: use 1 or more", o.backtests.limit)
	}
	if err := errors.Join(o.backtests.Validate(), o.backtests.archive.Validate()); err != nil {
		return err
	}
	given, err := loader.ModuleFiles("with -f, --module", o.modules)
	if err != nil {
		return err
	}
	ctx := cmd.Context()
	objects, err := o.backtests.resources(ctx)
	if err != nil {
		return exit.AsUsage(err)
	}
	var d printer.Step
	over := d.Show(cmd.ErrOrStderr())
	defer over()
	d.Set("Reading records")
	found, err := o.backtests.read(ctx, cmd.InOrStdin(), args, record.Query{Object: o.records.Object()})
	if err != nil {
		return err
	}
	d.Set("Loading policies")
	reading, err := o.backtests.policies(ctx, args, given, objects)
	if err != nil {
		return err
	}
	defer reading.Close()
	all := reading.Policies.All()
	b, err := backtest.New(all, o.backtests.catalog(args, found.Entries, objects, all))
	if err != nil {
		return err
	}
	d.Set("Evaluating policies")
	r, err := run(ctx, b, found)
	over()
	if err != nil {
		return err
	}
	r.note(all, reading.NotFetched)
	if err := r.write(cmd.OutOrStdout(), o.backtests.Output); err != nil {
		return err
	}
	return r.exitError(o.backtests.requireEvaluable)
}

// resources reads the files, with the default namespace.
func (o *backtestOptions) resources(ctx context.Context) ([]*unstructured.Unstructured, error) {
	objects, err := input.LoadResources(ctx, o.Files)
	if err != nil {
		return nil, err
	}
	namespace := "default"
	if *o.Namespace != "" {
		namespace = *o.Namespace
	}
	for _, object := range objects {
		if kind := object.GetKind(); object.GetNamespace() == "" && !strings.HasPrefix(kind, "Cluster") && kind != "CustomResourceDefinition" {
			object.SetNamespace(namespace)
		}
	}
	return objects, nil
}

// policies reads the policies as the operator does: those of the files, and of the cluster if one is
// used.
func (o *backtestOptions) policies(ctx context.Context, args []string, given preview.Modules, objects []*unstructured.Unstructured) (*preview.Reading, error) {
	now := time.Now()
	if o.offline(args) {
		s, err := survey.Files(objects, time.Now)
		if err != nil {
			return nil, err
		}
		return preview.ReadPolicies(ctx, s, nil, given, nil, now)
	}
	config, err := o.Config()
	if err != nil {
		return nil, err
	}
	mapper, err := o.ToRESTMapper()
	if err != nil {
		return nil, err
	}
	s := &survey.Survey{Absent: func(_ context.Context, gk schema.GroupKind) (bool, error) {
		_, err := mapper.RESTMapping(gk)
		if meta.IsNoMatchError(err) {
			return true, nil
		}
		return false, err
	}}
	return preview.ReadPolicies(ctx, s, config, given, slices.DeleteFunc(objects, isDefinition), now)
}

func isDefinition(o *unstructured.Unstructured) bool {
	return o.GetKind() == "CustomResourceDefinition"
}

// catalog returns the types of the records whose resource is known: from the cluster, or from
// CustomResourceDefinitions in the files, or because Kubernetes has them.
func (o *backtestOptions) catalog(args []string, list []record.Entry, objects []*unstructured.Unstructured, all []*policies.Policy) *catalog.Catalog {
	lists := map[schema.GroupVersion]*metav1.APIResourceList{}
	known := map[schema.GroupVersionKind]struct{}{}
	for _, e := range list {
		gvk := schema.FromAPIVersionAndKind(e.Object.APIVersion, e.Object.Kind)
		if _, is := known[gvk]; is {
			continue
		}
		known[gvk] = struct{}{}
		resource := definedResource(objects, gvk.GroupKind())
		if resource == "" && !o.offline(args) {
			if m, err := o.Mapping(gvk.Kind + "." + gvk.Version + "." + gvk.Group); err == nil {
				resource = m.Resource.Resource
			}
		}
		if resource == "" {
			resource = guessResource(gvk, all)
		}
		if resource == "" {
			continue
		}
		gv := gvk.GroupVersion()
		if lists[gv] == nil {
			lists[gv] = &metav1.APIResourceList{GroupVersion: gv.String()}
		}
		lists[gv].APIResources = append(lists[gv].APIResources, metav1.APIResource{
			Name: resource, Kind: gvk.Kind, Namespaced: true, Verbs: metav1.Verbs{"delete", "get", "list", "watch"},
		})
	}
	var built []*metav1.APIResourceList
	for _, l := range lists {
		built = append(built, l)
	}
	return catalog.Build(nil, built, catalog.Settings{})
}

// definedResource returns the resource of a kind in CustomResourceDefinitions.
func definedResource(objects []*unstructured.Unstructured, gk schema.GroupKind) string {
	for _, o := range objects {
		group, _, _ := unstructured.NestedString(o.Object, "spec", "group")
		kind, _, _ := unstructured.NestedString(o.Object, "spec", "names", "kind")
		if isDefinition(o) && group == gk.Group && kind == gk.Kind {
			plural, _, _ := unstructured.NestedString(o.Object, "spec", "names", "plural")
			return plural
		}
	}
	return ""
}

// guessResource returns the usual plural of a kind, unless a policy names other resources of its
// group, one of which may be this one.
func guessResource(gvk schema.GroupVersionKind, all []*policies.Policy) string {
	plural, _ := meta.UnsafeGuessKindToResource(gvk)
	if !strings.Contains(gvk.Group, ".") || strings.HasSuffix(gvk.Group, ".k8s.io") {
		return plural.Resource
	}
	for _, p := range all {
		for _, r := range p.Rules {
			selected, _ := r.Selects(plural.GroupResource())
			if !selected && (slices.Contains(r.Groups, gvk.Group) || slices.Contains(r.Groups, policies.Wildcard)) {
				return ""
			}
		}
	}
	return plural.Resource
}
