package policyset

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"

	"github.com/google/cel-go/cel"
	celtypes "github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/candidate"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/references"
	"github.com/gleaner-dev/gleaner/operator/retain"
	"github.com/gleaner-dev/gleaner/operator/retention"
	"github.com/gleaner-dev/gleaner/policies"
)

// Retention is a RetentionPolicy or ClusterRetentionPolicy. Its Policy says which objects it selects, and has no evaluator.
type Retention struct {
	Declaration
	Spec v1alpha1.RetentionPolicySpec

	Rule    retain.Rule
	Options candidate.Options // without the operator's namespace

	conditions func(context.Context, map[string]any) (bool, error)
	referrers  []referrer
}

// referrer says where the objects of a resource refer to others.
type referrer struct {
	resource schema.GroupResource
	read     references.Reader
}

// Readers returns what custom resources refer to, by their kinds, as the policies say that are accepted. The error says which of them is
// not served: what its objects refer to is not known then.
func Readers(all iter.Seq[*Retention], types *catalog.Catalog) (map[schema.GroupKind][]references.Reader, error) {
	kinds := map[schema.GroupResource]schema.GroupKind{}
	for _, t := range types.Collected() {
		kinds[t.Version.GroupResource()] = t.GroupKind()
	}
	readers := map[schema.GroupKind][]references.Reader{}
	var missing error
	for r := range all {
		if !r.Problem.IsZero() {
			continue
		}
		for _, f := range r.referrers {
			kind, served := kinds[f.resource]
			if !served {
				missing = fmt.Errorf("%s names references of %s, which this API server does not serve", r.Policy, f.resource)
				continue
			}
			readers[kind] = append(readers[kind], f.read)
		}
	}
	return readers, missing
}

// Enforces reports whether objects are removed.
func (r *Retention) Enforces() bool {
	return r.Policy.Enforce && r.Object.GetDeletionTimestamp() == nil
}

// OnlyFinished reports whether objects are selected only if they have finished.
func (r *Retention) OnlyFinished() bool { return r.Spec.Order == v1alpha1.OrderByFinish }

// Selects reports whether the policy selects an object of one of its resources, if it selects its namespace. With an error, it is not
// known.
func (r *Retention) Selects(o *unstructured.Unstructured) (bool, error) {
	switch {
	case r.Key.Namespace != "" && o.GetNamespace() != r.Key.Namespace:
		return false, nil
	case !r.Problem.IsZero():
		return false, fmt.Errorf("%s is not accepted: %s", r.Policy, r.Problem.Message)
	case r.Policy.ObjectSelector != nil && !r.Policy.ObjectSelector.Matches(labels.Set(o.GetLabels())):
		return false, nil
	case r.conditions == nil:
		return true, nil
	}
	return r.conditions(context.Background(), o.Object)
}

// SelectsByNamespace reports whether the policy selects objects by the labels of their namespaces.
func (r *Retention) SelectsByNamespace() bool {
	return r.Policy.NamespaceSelector != nil && !r.Policy.NamespaceSelector.Empty()
}

// Limit says which limit of the policy removes an object for a reason.
func (r *Retention) Limit(why retain.Reason) string {
	switch why {
	case retain.Excess:
		return fmt.Sprintf("keepLast: %d", *r.Spec.KeepLast)
	case retain.Surplus:
		return fmt.Sprintf("maxTotal: %d", *r.Spec.MaxTotal)
	case retain.TooOld:
		return fmt.Sprintf("maxAge: %s", *r.Spec.MaxAge)
	case retain.NotUsed:
		return fmt.Sprintf("unreferencedFor: %s", *r.Spec.UnreferencedFor)
	case retain.Expired:
		return fmt.Sprintf("ttlAfterFinished: %s", *r.Spec.TTLAfterFinished)
	default:
		return string(why)
	}
}

// Evaluated returns what package retention evaluates: the policy for objects of some kinds, which may change, and with what it needs to
// know of its surroundings. The operator never removes anything in its own namespace. The labels of a namespace are asked for only if
// the policy has a namespaceSelector.
func (r *Retention) Evaluated(isOfKind func(schema.GroupKind) bool, operator string, namespace func(string) (map[string]string, error)) retention.Policy {
	options := r.Options
	options.Namespace = operator
	p := retention.Policy{
		Name: r.Policy.String(), Rule: r.Rule, Options: options, OnlyFinished: r.OnlyFinished(),
		Selects: func(o *unstructured.Unstructured) (bool, error) {
			if !isOfKind(o.GroupVersionKind().GroupKind()) {
				return false, nil
			}
			return r.Selects(o)
		},
	}
	if r.SelectsByNamespace() {
		p.SelectsNamespace = func(name string) (bool, error) {
			of, err := namespace(name)
			return err == nil && r.Policy.NamespaceSelector.Matches(labels.Set(of)), err
		}
	}
	return p
}

// Kinds returns the kinds of the policy's resources, as far as they are served.
func (r *Retention) Kinds(types *catalog.Catalog) map[schema.GroupKind]bool {
	kinds := map[schema.GroupKind]bool{}
	for _, t := range types.Collected() {
		if r.Policy.Selects(t.Version.GroupResource()) && (t.Namespaced || r.Key.Namespace == "") {
			kinds[t.GroupKind()] = true
		}
	}
	return kinds
}

// buildRetention sets the limits of a retention policy, and what it selects.
func (b *Builder) buildRetention(r *Retention) {
	r.Policy = &policies.Policy{
		Kind: r.Kind, Namespace: r.Key.Namespace, Name: r.Key.Name, Generation: r.Object.GetGeneration(), Enforce: r.Spec.Mode == v1alpha1.ModeEnforce,
	}
	if !b.compileSelection(&r.Declaration) {
		return
	}
	r.conditions = r.Policy.Matches
	if err := b.compileRetention(r); err != nil {
		r.refuse(v1alpha1.ConditionAccepted, "Invalid", err.Error())
	}
}

func (b *Builder) compileRetention(r *Retention) error {
	r.Rule = retain.Rule{MinAgeFrom: retain.ByCreation, MaxAgeFrom: retain.ByCreation, Order: retain.ByCreation}
	r.Options = candidate.Options{IncludeControlled: r.Spec.IncludeControlled}
	if r.OnlyFinished() {
		r.Rule.Order = retain.ByFinish
	}
	r.Rule.KeepLast, r.Rule.MaxTotal = number(r.Spec.KeepLast), number(r.Spec.MaxTotal)
	for _, each := range []struct {
		field string
		from  *v1alpha1.RetentionDuration
		set   func(time.Duration)
	}{
		{"minAge", r.Spec.MinAge, func(d time.Duration) { r.Rule.MinAge = d }},
		{"maxAge", r.Spec.MaxAge, func(d time.Duration) { r.Rule.MaxAge = d }},
		{"unreferencedFor", r.Spec.UnreferencedFor, func(d time.Duration) { r.Rule.MaxUnused = d }},
		{"ttlAfterFinished", r.Spec.TTLAfterFinished, func(d time.Duration) { r.Rule.TTL = &d }},
	} {
		if each.from == nil {
			continue
		}
		d, err := time.ParseDuration(string(*each.from))
		if err != nil || d < 0 {
			return fmt.Errorf("%s is not a duration: write one such as 24h", each.field)
		}
		each.set(d)
	}
	if r.Spec.FinishedAt != "" {
		program, err := compile(b.cel, "finishedAt", r.Spec.FinishedAt, "that returns a time or null", cel.TimestampType, cel.StringType, cel.NullType)
		if err != nil {
			return err
		}
		r.Options.Finished = finishedBy(program)
	}
	for i, from := range r.Spec.References {
		field := fmt.Sprintf("references[%d].expression", i)
		program, err := compile(b.cel, field, from.Expression, "that returns a name or a list of names", cel.StringType, cel.ListType(cel.StringType), cel.ListType(cel.DynType), cel.NullType)
		if err != nil {
			return err
		}
		r.referrers = append(r.referrers, referrer{
			resource: schema.GroupResource{Group: from.APIGroup, Resource: from.Resource}, read: referencesBy(program, field, references.Kind(from.Kind)),
		})
	}
	return b.compileGroups(r)
}

// maxReferences is the maximum number of references of an object.
const maxReferences = 100

func referencesBy(program cel.Program, field string, kind references.Kind) references.Reader {
	return func(o *unstructured.Unstructured) ([]references.Reference, error) {
		value, _, err := program.ContextEval(context.Background(), map[string]any{variable: o.Object})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", field, err)
		}
		names, err := namesOf(value)
		if err != nil {
			return nil, fmt.Errorf("%s %w", field, err)
		}
		var refs []references.Reference
		for _, name := range names {
			namespace, of := o.GetNamespace(), name
			if before, after, is := strings.Cut(name, "/"); is {
				namespace, of = before, after
			}
			if of != "" {
				refs = append(refs, references.Reference{Kind: kind, Namespace: namespace, Name: of})
			}
		}
		return refs, nil
	}
}

// namesOf returns the names that an expression has given.
func namesOf(value ref.Val) ([]string, error) {
	if value.Type() == celtypes.NullType {
		return nil, nil
	}
	if name, ok := value.Value().(string); ok {
		return []string{name}, nil
	}
	list, ok := value.(traits.Lister)
	if !ok {
		return nil, fmt.Errorf("gives %s: write an expression that returns a name or a list of names", value.Type())
	}
	if n, ok := list.Size().Value().(int64); !ok || n > maxReferences {
		return nil, fmt.Errorf("gives more than %d names", maxReferences)
	}
	var names []string
	for at := list.Iterator(); at.HasNext() == celtypes.True; {
		name, ok := at.Next().Value().(string)
		if !ok {
			return nil, errors.New("gives a list with something else than names: write an expression that returns a list of names")
		}
		names = append(names, name)
	}
	return names, nil
}

func number(n *int32) *int {
	if n == nil {
		return nil
	}
	most := int(*n)
	return &most
}

func (b *Builder) compileGroups(r *Retention) error {
	by := r.Spec.GroupBy
	if by == nil {
		return nil
	}
	switch by.Type {
	case v1alpha1.GroupByOwner:
		r.Options.GroupBy = candidate.ByOwner
	case v1alpha1.GroupByNamespace:
		r.Options.GroupBy = candidate.ByNamespace
	case v1alpha1.GroupByLabel:
		r.Options.GroupBy, r.Options.Label = candidate.ByLabel, by.Label
	case v1alpha1.GroupByExpression:
		program, err := compile(b.cel, "groupBy.expression", by.Expression, "that returns a string", cel.StringType)
		if err != nil {
			return err
		}
		r.Options.GroupBy, r.Options.Key = candidate.ByKey, keyBy(program)
	default:
		return fmt.Errorf("groupBy.type %q is not known: write Owner, Namespace, Label or Expression", by.Type)
	}
	return nil
}

// maxKey is the maximum size of the group of an object, in bytes.
const maxKey = 253

func keyBy(program cel.Program) func(*unstructured.Unstructured) (string, error) {
	return func(o *unstructured.Unstructured) (string, error) {
		value, _, err := program.ContextEval(context.Background(), map[string]any{variable: o.Object})
		if err != nil {
			return "", fmt.Errorf("groupBy.expression: %w", err)
		}
		key, ok := value.Value().(string)
		switch {
		case !ok:
			return "", fmt.Errorf("groupBy.expression gives %s: write an expression that returns a string", value.Type())
		case len(key) > maxKey:
			return "", fmt.Errorf("groupBy.expression gives %d bytes: write an expression that returns at most %d", len(key), maxKey)
		}
		return key, nil
	}
}

func finishedBy(program cel.Program) func(*unstructured.Unstructured) (bool, time.Time, error) {
	return func(o *unstructured.Unstructured) (bool, time.Time, error) {
		value, _, err := program.ContextEval(context.Background(), map[string]any{variable: o.Object})
		if err != nil {
			return false, time.Time{}, fmt.Errorf("finishedAt: %w", err)
		}
		if value.Type() == celtypes.NullType {
			return false, time.Time{}, nil
		}
		switch at := value.Value().(type) {
		case time.Time:
			return true, at, nil
		case string:
			parsed, err := time.Parse(time.RFC3339, at)
			if err != nil {
				return false, time.Time{}, fmt.Errorf("finishedAt gives %.40q: write an expression that returns a time, such as 2030-01-02T03:04:05Z, or null", at)
			}
			return true, parsed, nil
		default:
			return false, time.Time{}, fmt.Errorf("finishedAt gives %s: write an expression that returns a time or null", value.Type())
		}
	}
}
