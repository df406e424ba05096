// Package budgetstore reads DeletionBudgets and ClusterDeletionBudgets, and converts their status from and to what
// budgets count.
//
// What a budget allows is decided elsewhere: see packages budget and budgeter.
package budgetstore

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/budget"
	"github.com/gleaner-dev/gleaner/operator/livelist"
	"github.com/gleaner-dev/gleaner/policies"
)

// Hook is the hook under which the policies of budgets are in a policies.Set.
const Hook = hostabi.HookCollect

// Resource is a DeletionBudget or ClusterDeletionBudget.
type Resource struct {
	client.Object
	Spec   *v1alpha1.DeletionBudgetSpec
	Status *v1alpha1.DeletionBudgetStatus
}

// Read lists all budgets, also those that are being deleted. It reports whether one of their types is served.
func Read(ctx context.Context, from client.Reader, absent livelist.Absent) (all []Resource, served bool, err error) {
	var (
		cluster    v1alpha1.ClusterDeletionBudgetList
		namespaced v1alpha1.DeletionBudgetList
	)
	for _, each := range []struct {
		kind string
		into client.ObjectList
	}{{v1alpha1.KindClusterDeletionBudget, &cluster}, {v1alpha1.KindDeletionBudget, &namespaced}} {
		is, err := livelist.List(ctx, from, absent, each.kind, each.into)
		if err != nil {
			return nil, false, err
		}
		served = served || is
	}
	for i := range cluster.Items {
		all = append(all, ofCluster(&cluster.Items[i]))
	}
	for i := range namespaced.Items {
		all = append(all, ofNamespace(&namespaced.Items[i]))
	}
	return all, served, nil
}

func ofCluster(b *v1alpha1.ClusterDeletionBudget) Resource { return Resource{b, &b.Spec, &b.Status} }
func ofNamespace(b *v1alpha1.DeletionBudget) Resource      { return Resource{b, &b.Spec, &b.Status} }

// New returns an empty resource with a name: a DeletionBudget, or a ClusterDeletionBudget if the namespace is "".
func New(namespace, name string) Resource {
	meta := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if namespace == "" {
		return ofCluster(&v1alpha1.ClusterDeletionBudget{ObjectMeta: meta})
	}
	return ofNamespace(&v1alpha1.DeletionBudget{ObjectMeta: meta})
}

// DeepCopy returns a copy that shares nothing.
func (r Resource) DeepCopy() Resource {
	switch b := r.Object.(type) {
	case *v1alpha1.ClusterDeletionBudget:
		return ofCluster(b.DeepCopy())
	case *v1alpha1.DeletionBudget:
		return ofNamespace(b.DeepCopy())
	default:
		panic(fmt.Sprintf("a budget is a %T", b))
	}
}

// Kind returns the kind.
func (r Resource) Kind() string {
	if r.GetNamespace() == "" {
		return v1alpha1.KindClusterDeletionBudget
	}
	return v1alpha1.KindDeletionBudget
}

// String returns the kind and the name.
func (r Resource) String() string {
	if r.GetNamespace() == "" {
		return r.Kind() + " " + r.GetName()
	}
	return r.Kind() + " " + r.GetNamespace() + "/" + r.GetName()
}

// Selection returns a policy that selects the same objects. If the selectors are invalid, the error says so, and
// the policy selects all objects of the resources.
func (r Resource) Selection() (*policies.Policy, error) {
	p := &policies.Policy{Kind: r.Kind(), Namespace: r.GetNamespace(), Name: r.GetName(), Hooks: []hostabi.Hook{Hook}, Enforce: true}
	for _, rule := range r.Spec.Resources {
		p.Rules = append(p.Rules, policies.Rule{Groups: rule.APIGroups, Resources: rule.Resources})
	}
	object, err := selector("objectSelector", r.Spec.ObjectSelector)
	if err != nil {
		return p, err
	}
	namespace, err := selector("namespaceSelector", r.Spec.NamespaceSelector)
	if err != nil {
		return p, err
	}
	p.ObjectSelector, p.NamespaceSelector = object, namespace
	return p, nil
}

func selector(field string, from *metav1.LabelSelector) (labels.Selector, error) {
	if from == nil {
		return nil, nil //nolint:nilnil // all labels
	}
	compiled, err := metav1.LabelSelectorAsSelector(from)
	if err != nil {
		return nil, fmt.Errorf("%s can't be read: %w", field, err)
	}
	if compiled.Empty() {
		return nil, nil //nolint:nilnil // all labels
	}
	return compiled, nil
}

// Percentage returns maxDeletions if it is a percentage; 0 if it is a number.
func (r Resource) Percentage() int {
	if r.Spec.MaxDeletions.Type != intstr.String {
		return 0
	}
	n, err := strconv.Atoi(strings.TrimSuffix(r.Spec.MaxDeletions.StrVal, "%"))
	if err != nil {
		return 0
	}
	return min(max(n, 0), 100)
}

// Limit returns what the budget allows. A percentage needs the matching objects to be counted: see Status.Matching.
func (r Resource) Limit() budget.Limit {
	limit := budget.Limit{Window: r.Spec.Window.Duration}
	switch percentage := r.Percentage(); {
	case r.Spec.MaxDeletions.Type == intstr.Int:
		limit.Max = int(r.Spec.MaxDeletions.IntVal)
	case percentage > 0 && r.Status.Matching != nil:
		limit.Max = max(int(min(r.Status.Matching.Count, math.MaxInt32)*int64(percentage)/100), 1)
	}
	return limit
}

// Ledger returns what the status counts.
func (r Resource) Ledger() (l budget.Ledger) {
	for _, b := range r.Status.Reservations {
		l.Batches = append(l.Batches, budget.Batch{ID: b.ID, At: b.Time.Time, Count: int(b.Count)})
	}
	for _, d := range r.Status.Deletions {
		l.Buckets = append(l.Buckets, budget.Bucket{At: d.Time.Time, Count: int(d.Count)})
	}
	return l
}

// SetLedger sets what the status counts.
func (r Resource) SetLedger(l budget.Ledger) {
	r.Status.Reservations, r.Status.Deletions = nil, nil
	for _, b := range l.Batches {
		r.Status.Reservations = append(r.Status.Reservations, v1alpha1.DeletionReservation{ID: b.ID, Time: metav1.NewMicroTime(b.At), Count: count32(b.Count)})
	}
	for _, b := range l.Buckets {
		r.Status.Deletions = append(r.Status.Deletions, v1alpha1.DeletionCount{Time: metav1.NewMicroTime(b.At), Count: count32(b.Count)})
	}
	r.Status.Used = count32(l.Used())
}

func count32(n int) int32 { return int32(min(max(n, 0), math.MaxInt32)) } //nolint:gosec // it is in range

// IsExhausted reports whether deletions wait for the budget, as its status says.
func (r Resource) IsExhausted() bool {
	return apimeta.IsStatusConditionTrue(r.Status.Conditions, v1alpha1.ConditionExhausted)
}

// IsTripped reports whether nothing is deleted until a person resumes, as the status says.
func (r Resource) IsTripped() bool {
	return r.IsExhausted() && r.Trips()
}

// Trips reports whether nothing more is deleted after the budget is exhausted until a person resumes.
func (r Resource) Trips() bool {
	return r.Spec.OnExhausted != v1alpha1.OnExhaustedWait && r.Spec.OnExhausted != ""
}

// IsResumed reports whether a person has resumed the budget since it was exhausted.
func (r Resource) IsResumed() bool {
	return r.IsExhausted() && r.GetAnnotations()[v1alpha1.ResumeAnnotation] == strconv.FormatInt(r.Status.Exhaustions, 10)
}

// Message describes an exhausted budget, for people.
func (r Resource) Message() string {
	text := fmt.Sprintf("%s is exhausted: %d of %d deletions in %s", r, r.Status.Used, r.Status.Allowed, r.Spec.Window.Duration)
	if !r.IsTripped() {
		return text
	}
	return text + "; nothing more is deleted until gleaner resume " + r.ResumeArgs()
}

// ResumeArgs returns the arguments of gleaner resume for the budget.
func (r Resource) ResumeArgs() string {
	if r.GetNamespace() == "" {
		return "--budget " + r.GetName()
	}
	return "--budget " + r.GetNamespace() + "/" + r.GetName()
}

// Sort sorts budgets: those of the cluster first, then by name.
func Sort(all []Resource) {
	slices.SortFunc(all, func(a, b Resource) int { return strings.Compare(a.key(), b.key()) })
}

func (r Resource) key() string { return r.GetNamespace() + "/" + r.GetName() }
