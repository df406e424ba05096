// Package preview evaluates retention policies on the objects that a cluster has now, once: what they remove now, what they remove later
// if nothing changes, and why the rest is kept. It writes nothing.
package preview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/operator/candidate"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/follow"
	"github.com/gleaner-dev/gleaner/operator/policyset"
	"github.com/gleaner-dev/gleaner/operator/references"
	"github.com/gleaner-dev/gleaner/operator/retain"
	"github.com/gleaner-dev/gleaner/operator/retention"
)

// Options say what is evaluated. All fields are required, unless stated otherwise.
type Options struct {
	Policies []*policyset.Retention
	Lister   follow.Lister
	Types    *catalog.Catalog

	// Absent reports whether a kind is proven not to be served.
	Absent func(context.Context, schema.GroupKind) (bool, error)

	// Namespace limits what is read to the objects of a namespace, for users who may not read others; "": all are read. Then the
	// results of policies of the cluster that count objects may differ.
	Namespace string

	Operator string // the operator's namespace
	Now      time.Time

	// KeptByHook evaluates the policies with the hook retain on an object that is removed now, and returns the one that keeps it, with its
	// reason; "": none does. An error means that this is not known. Nil: no policy has the hook.
	KeptByHook func(context.Context, retention.Decision, *policyset.Retention) (string, error)
}

// Outcome is what happens to an object.
type Outcome string

// The outcomes.
const (
	Removed Outcome = "Removed" // now
	Later   Outcome = "Later"   // if nothing changes
	Kept    Outcome = "Kept"
	Unknown Outcome = "Unknown" // policies with the hook retain could not be evaluated
)

// Object is what a policy says about an object.
type Object struct {
	retention.Decision
	Policy  *policyset.Retention
	Outcome Outcome

	// KeptBy is the policy that keeps an object which this one removes (P-25); "": none does.
	KeptBy string

	Unknown string // why the outcome is unknown
}

// Report is the result.
type Report struct {
	// Objects are sorted by outcome: Removed, in the order of each policy; Unknown; Later, by time; Kept.
	Objects []Object

	// Unread says what could not be read. What it may concern is kept.
	Unread []string
}

// Evaluate reads objects and evaluates policies.
func Evaluate(ctx context.Context, o Options) (Report, error) {
	r := &reader{Options: o, namespaces: map[string]map[string]string{}}
	if err := r.readNamespaces(ctx); err != nil {
		return Report{}, err
	}
	for _, p := range o.Policies {
		kinds := p.Kinds(o.Types)
		s := &surveyed{Retention: p, kinds: kinds}
		s.Survey = retention.New(p.Evaluated(func(kind schema.GroupKind) bool { return kinds[kind] }, o.Operator, r.namespace))
		r.surveys = append(r.surveys, s)
	}
	if err := r.readObjects(ctx); err != nil {
		return Report{}, err
	}
	moment := retention.Moment{Now: o.Now, Since: o.Now}
	if r.refersTo() {
		uses, err := r.readUses(ctx)
		if err != nil {
			return Report{}, err
		}
		moment.Uses = uses
	}
	return Report{Objects: r.evaluate(ctx, moment), Unread: r.unread}, ctx.Err()
}

type reader struct {
	Options
	surveys    []*surveyed
	namespaces map[string]map[string]string
	unread     []string
}

type surveyed struct {
	*policyset.Retention
	*retention.Survey
	kinds    map[schema.GroupKind]bool
	unlisted bool // not all of its objects could be read
}

func (r *reader) namespace(name string) (map[string]string, error) {
	of, known := r.namespaces[name]
	if !known && name != "" {
		return nil, fmt.Errorf("the labels of namespace %s are not known", name)
	}
	return of, nil
}

// readNamespaces reads the labels of namespaces, if a policy selects by them.
func (r *reader) readNamespaces(ctx context.Context) error {
	if !slices.ContainsFunc(r.Policies, (*policyset.Retention).SelectsByNamespace) {
		return nil
	}
	_, err := r.list(ctx, schema.GroupKind{Kind: "Namespace"}, "", func(o *unstructured.Unstructured) { r.namespaces[o.GetName()] = o.GetLabels() })
	return err
}

// readObjects reads what policies select.
func (r *reader) readObjects(ctx context.Context) error {
	in := map[schema.GroupKind]string{} // namespaces
	for _, s := range r.surveys {
		for kind := range s.kinds {
			namespace := cmp.Or(r.Namespace, s.Key.Namespace)
			if known, is := in[kind]; is && known != namespace {
				namespace = r.Namespace
			}
			in[kind] = namespace
		}
	}
	for kind, namespace := range in {
		read, err := r.list(ctx, kind, namespace, func(o *unstructured.Unstructured) {
			for _, s := range r.surveys {
				s.Put(o)
			}
		})
		if err != nil {
			return err
		}
		for _, s := range r.surveys {
			s.unlisted = s.unlisted || s.kinds[kind] && !read
		}
	}
	return nil
}

// list lists the objects of a kind, and reports whether they could be read. What may not be read is noted.
func (r *reader) list(ctx context.Context, kind schema.GroupKind, namespace string, put func(*unstructured.Unstructured)) (bool, error) {
	resource, served := r.Types.Preferred(kind)
	if !served {
		return true, nil
	}
	if !resource.Namespaced {
		namespace = ""
	}
	_, err := follow.List(ctx, r.Lister, resource, namespace, put)
	switch {
	case apierrors.IsForbidden(err):
		r.unread = append(r.unread, fmt.Sprintf("%s: %s", resource.Version.GroupResource(), err))
		return false, nil
	case err != nil:
		return false, err
	}
	return true, nil
}

// refersTo reports whether a policy selects what others can refer to.
func (r *reader) refersTo() bool {
	for _, s := range r.surveys {
		for kind := range s.kinds {
			if references.Referred(kind) {
				return true
			}
		}
	}
	return false
}

// readUses reads what may refer to others.
func (r *reader) readUses(ctx context.Context) (uses candidate.Uses, err error) {
	var index references.Index
	complete := true
	readers, missing := policyset.Readers(slices.Values(r.Policies), r.Types)
	if missing != nil {
		r.unread, complete = append(r.unread, missing.Error()), false
	}
	kinds := references.Kinds()
	for kind := range readers {
		if !slices.Contains(kinds, kind) {
			kinds = append(kinds, kind)
		}
	}
	for _, kind := range kinds {
		if _, served := r.Types.Preferred(kind); !served {
			absent, err := r.Absent(ctx, kind)
			if err != nil || !absent {
				r.unread = append(r.unread, fmt.Sprintf("%s: it may be served: %v", kind, err))
				complete = false
			}
			continue
		}
		namespace := r.Namespace
		if references.AcrossNamespaces(kind) {
			namespace = ""
		}
		read, err := r.list(ctx, kind, namespace, func(o *unstructured.Unstructured) { index.Put(o, readers[kind]...) })
		if err != nil {
			return uses, err
		}
		complete = complete && read
	}
	if err := index.Err(); err != nil {
		r.unread, complete = append(r.unread, err.Error()), false
	}
	return candidate.Uses{Complete: complete, User: func(kind schema.GroupKind, namespace, name string) string {
		return index.User(references.Kind(kind.Kind), namespace, name)
	}}, nil
}

// evaluate evaluates all policies.
func (r *reader) evaluate(ctx context.Context, at retention.Moment) []Object {
	results := make([]retention.Result, len(r.surveys))
	for i, s := range r.surveys {
		results[i] = s.Evaluate(at)
	}
	by := map[Outcome][]Object{}
	for i, s := range r.surveys {
		for _, d := range results[i].Removals {
			o := r.removal(ctx, s, d)
			by[o.Outcome] = append(by[o.Outcome], o)
		}
		for _, d := range results[i].Kept {
			outcome := Later
			if d.Due.IsZero() {
				outcome = Kept
			}
			by[outcome] = append(by[outcome], Object{Decision: d, Policy: s.Retention, Outcome: outcome})
		}
	}
	slices.SortStableFunc(by[Later], func(a, b Object) int { return a.Due.Compare(b.Due) })
	return slices.Concat(by[Removed], by[Unknown], by[Later], by[Kept])
}

// removal returns what happens to an object that a policy removes: others may keep it.
func (r *reader) removal(ctx context.Context, s *surveyed, d retention.Decision) Object {
	o := Object{Decision: d, Policy: s.Retention, Outcome: Removed, KeptBy: r.keptBy(s, d)}
	if s.unlisted {
		o.KeptBy = "not all objects that the policy selects could be read"
	}
	if o.KeptBy == "" && r.KeptByHook != nil {
		var err error
		if o.KeptBy, err = r.KeptByHook(ctx, d, s.Retention); err != nil {
			o.Outcome, o.Unknown = Unknown, err.Error()
		}
	}
	if o.KeptBy != "" {
		o.Outcome = Kept
	}
	return o
}

// keptBy returns the policy in force that keeps an object which another one removes.
func (r *reader) keptBy(by *surveyed, d retention.Decision) string {
	for _, other := range r.surveys {
		if other != by && other.Enforces() && other.Has(d.UID) && !other.Removes(d.UID) && d.Reason != retain.IsTerminating {
			return other.Policy.String()
		}
	}
	return ""
}
