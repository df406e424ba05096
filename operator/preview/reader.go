package preview

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/consult"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/intents"
	"github.com/gleaner-dev/gleaner/policies"
)

// reader reads for policies: what they are shown of an object is as it is in the
// cluster, with the metadata that it would have.
type reader struct {
	world  *world
	live   consult.Reader // nil: everything is from files
	bodies map[body]*unstructured.Unstructured

	policies *policies.Set
	doubt    func(string) // what is decided now rests on something that can't be known here
}

// body is an object as somebody may see it.
type body struct {
	id  graph.ID
	who policies.Account
}

// Get implements consult.Reader.
func (r *reader) Get(ctx context.Context, who policies.Account, resource schema.GroupVersionResource, ns, name string) (*unstructured.Unstructured, error) {
	o, ok := r.world.shown(resource, ns, name)
	if !ok {
		return nil, apierrors.NewNotFound(resource.GroupResource(), name)
	}
	whole, err := r.whole(ctx, who, o)
	if err != nil {
		return nil, err
	}
	return whole, dress(whole, o.PartialObjectMetadata)
}

// whole is a copy of the object as it is in the cluster.
func (r *reader) whole(ctx context.Context, who policies.Account, o *object) (*unstructured.Unstructured, error) {
	if known, ok := r.bodies[body{o.id, who}]; ok {
		return known.DeepCopy(), nil
	}
	if r.live == nil {
		if who != (policies.Account{}) {
			r.doubt(fmt.Sprintf("what service account %s/%s may read is not in the file", who.Namespace, who.Name))
		}
		return r.world.survey.Items[o.id].Whole.DeepCopy(), nil
	}
	whole, err := r.live.Get(ctx, who, o.resource.Version, o.Namespace, o.Name)
	switch {
	case err != nil && ours(err, who):
		r.doubt(fmt.Sprintf("%s can't be read: %v", o, err))
		return nil, errors.New(err.Error()) // not wrapped: it is not the service account that may not
	case err != nil:
		return nil, err
	case whole.GetUID() != o.UID:
		r.doubt(fmt.Sprintf("%s was made anew meanwhile", o))
		return nil, fmt.Errorf("read %s: it is another one by now", o)
	}
	r.bodies[body{o.id, who}] = whole
	return whole.DeepCopy(), nil
}

// ours reports whether an error says nothing of what the operator could read: only
// that a service account may not, it would find so as well.
func ours(err error, who policies.Account) bool {
	if who == (policies.Account{}) || !apierrors.IsForbidden(err) {
		return true
	}
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return true
	}
	details := answer.Status().Details
	return details == nil || details.Kind == "serviceaccounts" && details.Name == who.Name // we may not act as that account
}

// dress gives an object the metadata that it would have.
func dress(whole *unstructured.Unstructured, m *metav1.PartialObjectMetadata) error {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&m.ObjectMeta)
	if err != nil {
		return fmt.Errorf("show %s: %w", m.Name, err)
	}
	to, _ := whole.Object["metadata"].(map[string]any)
	if to == nil {
		to = map[string]any{}
		whole.Object["metadata"] = to
	}
	for _, field := range []string{"resourceVersion", "ownerReferences", "finalizers", "deletionTimestamp"} {
		delete(to, field)
		if value, has := content[field]; has {
			to[field] = value
		}
	}
	annotations := whole.GetAnnotations()
	for name := range annotations {
		if _, has := m.Annotations[name]; !has && kept(name) {
			delete(annotations, name)
		}
	}
	for name, value := range m.Annotations {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[name] = value
	}
	whole.SetAnnotations(annotations)
	return nil
}

// Namespace implements consult.Reader.
func (r *reader) Namespace(ctx context.Context, name string) (consult.Namespace, error) {
	if name == "" {
		return consult.Namespace{}, nil
	}
	if o, ok := r.world.find(schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", name); ok && name != r.world.survey.Implied {
		return consult.Namespace{Labels: o.Labels, Terminating: o.DeletionTimestamp != nil}, nil
	}
	if r.live != nil {
		found, err := r.live.Namespace(ctx, name)
		if err != nil {
			r.doubt(fmt.Sprintf("namespace %s can't be read: %v", name, err))
		}
		return found, err
	}
	if slices.ContainsFunc(r.policies.All(), func(p *policies.Policy) bool { return p.Namespaces != nil && !p.Namespaces.Empty() }) {
		r.doubt(fmt.Sprintf("namespace %s is not in the file, and policies go by the labels of namespaces", name))
		return consult.Namespace{}, fmt.Errorf("namespace %s is not in the file", name)
	}
	return consult.Namespace{}, nil
}

// Do implements consult.Intents: it does nothing, since what would be read then is
// not what can be read now.
func (r *reader) Do(_ context.Context, on intents.Behalf, intent hostabi.Intent) hostabi.Result {
	if slices.ContainsFunc(r.policies.All(), func(p *policies.Policy) bool { return p.String() == on.Name && p.Enforce }) {
		r.doubt(on.Name + " decides by what it reads itself, which a preview does not read")
	}
	return hostabi.Result{Error: &hostabi.ResultError{Reason: hostabi.ErrorUnavailable, Message: "this is a preview"}}
}

var _ consult.Reader = (*reader)(nil)

// kept reports whether a survey keeps an annotation.
func kept(annotation string) bool { return strings.HasPrefix(annotation, "gleaner.dev/") }
