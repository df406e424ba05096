package consult

import (
	"context"
	"fmt"
	"maps"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/policies"
)

// results carries out what a policy asks to read, and adds what came of it to the
// results of earlier rounds.
func (s *subject) results(ctx context.Context, p *policies.Policy, intents []hostabi.Intent, earlier map[string]hostabi.Result) map[string]hostabi.Result {
	all := maps.Clone(earlier)
	if all == nil {
		all = map[string]hostabi.Result{}
	}
	for _, intent := range intents {
		var r hostabi.Result
		switch {
		case intent.Get != nil:
			r = s.get(ctx, p, *intent.Get)
		case intent.List != nil:
			r = s.list(ctx, p, *intent.List)
		default: // the parser lets no other pass
			r = failed(hostabi.ErrorNotGranted, fmt.Errorf("a policy may only read"))
		}
		all[intent.ID] = r
	}
	return all
}

func (s *subject) get(ctx context.Context, p *policies.Policy, get hostabi.GetIntent) hostabi.Result {
	resource, refusal := s.granted(p, get.APIVersion, get.Kind, get.Namespace)
	if refusal != nil {
		return *refusal
	}
	object, err := s.Reader.Get(ctx, p.Account, resource.Version, get.Namespace, get.Name)
	if err != nil {
		return failed(s.reasonOf(err, resource, get.Name), err)
	}
	shown, err := Document(object)
	if err != nil {
		return failed(hostabi.ErrorUnavailable, err)
	}
	return hostabi.Result{Object: &shown}
}

func (s *subject) list(ctx context.Context, p *policies.Policy, list hostabi.ListIntent) hostabi.Result {
	resource, refusal := s.granted(p, list.APIVersion, list.Kind, list.Namespace)
	if refusal != nil {
		return *refusal
	}
	limit := int64(hostabi.MaxListLimit)
	if list.Limit != 0 {
		limit = int64(list.Limit)
	}
	page, err := s.Reader.List(ctx, p.Account, resource.Version, list.Namespace, metav1.ListOptions{
		LabelSelector: list.LabelSelector, FieldSelector: list.FieldSelector, Limit: limit, Continue: list.Continue,
	})
	if err != nil {
		return failed(s.reasonOf(err, resource, ""), err)
	}
	r := &hostabi.ListResult{Items: []hostabi.Object{}, Continue: page.GetContinue()}
	for i := range page.Items {
		shown, err := Document(&page.Items[i])
		if err != nil {
			return failed(hostabi.ErrorUnavailable, err)
		}
		r.Items = append(r.Items, shown)
	}
	return hostabi.Result{List: r}
}

// granted finds the resource that an intent names, or says why it is not read.
func (s *subject) granted(p *policies.Policy, apiVersion, kind, namespace string) (catalog.Resource, *hostabi.Result) {
	refuse := func(reason hostabi.ErrorReason, format string, args ...any) (catalog.Resource, *hostabi.Result) {
		r := failed(reason, fmt.Errorf(format, args...))
		return catalog.Resource{}, &r
	}
	resource, served := s.resourceOf(apiVersion, kind)
	switch {
	case !served:
		return refuse(hostabi.ErrorInvalid, "%s %s is not served", apiVersion, kind)
	case !resource.Namespaced && namespace != "":
		return refuse(hostabi.ErrorInvalid, "%s has no namespace", kind)
	case p.Account == policies.Account{}:
		return refuse(hostabi.ErrorNotGranted, "the policy names no serviceAccount to read as")
	case p.Namespace != "" && namespace != p.Namespace:
		return refuse(hostabi.ErrorNotGranted, "a policy of namespace %s may read in no other", p.Namespace)
	}
	for _, grant := range p.Reads {
		if selected, _ := grant.Selects(resource.Version.GroupResource()); selected && (!resource.Namespaced || grant.Covers(namespace)) {
			return resource, nil
		}
	}
	return refuse(hostabi.ErrorNotGranted, "none of grants.read covers %s in namespace %q", resource.Version.GroupResource(), namespace)
}

func failed(reason hostabi.ErrorReason, err error) hostabi.Result {
	message := err.Error()
	if len(message) > hostabi.MaxReasonBytes {
		message = message[:hostabi.MaxReasonBytes]
	}
	return hostabi.Result{Error: &hostabi.ResultError{Reason: reason, Message: message}}
}

// reasonOf sorts the API server's answer to a read. That there is no such object
// counts only where the answer names it, and is not a proxy's.
func (s *subject) reasonOf(err error, resource catalog.Resource, name string) hostabi.ErrorReason {
	if name != "" && catalog.Denies(err, resource.Version.GroupResource(), name) {
		return hostabi.ErrorNotFound
	}
	for _, r := range []struct {
		is     func(error) bool
		reason hostabi.ErrorReason
	}{
		{apierrors.IsForbidden, hostabi.ErrorForbidden},
		{apierrors.IsUnauthorized, hostabi.ErrorForbidden},
		{apierrors.IsResourceExpired, hostabi.ErrorExpired},
		{apierrors.IsGone, hostabi.ErrorExpired},
		{apierrors.IsBadRequest, hostabi.ErrorInvalid},
		{apierrors.IsInvalid, hostabi.ErrorInvalid},
	} {
		if r.is(err) {
			return r.reason
		}
	}
	return hostabi.ErrorUnavailable
}
