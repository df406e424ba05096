package permissions

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

const maxConcurrentReviews = 8

// MissingPermission is a permission that the operator's service account does not have.
type MissingPermission struct {
	Namespace    string `json:"namespace,omitempty"` // none: all namespaces
	Verb         string `json:"verb"`
	Group        string `json:"group"`
	Resource     string `json:"resource"`
	Name         string `json:"name,omitempty"`
	Reason       string `json:"why"`            // reason
	DeniedReason string `json:"said,omitempty"` // reason of the authorizer
}

// String returns the permission in the format of kubectl auth can-i.
func (m MissingPermission) String() string {
	text := m.Verb + " " + m.Resource
	if m.Group != "" {
		text += "." + m.Group
	}
	if m.Name != "" {
		text += "/" + m.Name
	}
	if m.Namespace != "" {
		return text + " in namespace " + m.Namespace
	}
	return text + " in all namespaces"
}

// MergeVerbs merges permissions that differ only in the verb.
func MergeVerbs(missing []MissingPermission) []MissingPermission {
	var folded []MissingPermission
	for _, m := range missing {
		if n := len(folded); n != 0 {
			same := folded[n-1]
			if same.Verb = m.Verb; same == m {
				folded[n-1].Verb += ", " + m.Verb
				continue
			}
		}
		folded = append(folded, m)
	}
	return folded
}

// Check returns the permissions that the service account does not have.
func Check(ctx context.Context, kube kubernetes.Interface, s Setup, rights []Rule) ([]MissingPermission, error) {
	var candidates []MissingPermission
	for _, r := range withoutRedundant(rights) {
		candidates = append(candidates, permissionsOf(r)...)
	}
	denied := make([]bool, len(candidates))
	var group errgroup.Group
	group.SetLimit(maxConcurrentReviews)
	for i := range candidates {
		group.Go(func() (err error) {
			denied[i], err = candidates[i].isDenied(ctx, kube, s)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var missing []MissingPermission
	for i, m := range candidates {
		if denied[i] && !slices.ContainsFunc(missing, func(o MissingPermission) bool { return o.String() == m.String() }) {
			missing = append(missing, m)
		}
	}
	return missing, nil
}

// permissionsOf splits a rule into permissions.
func permissionsOf(r Rule) []MissingPermission {
	names := r.Names
	if len(names) == 0 {
		names = []string{""}
	}
	var list []MissingPermission
	for _, group := range r.Groups {
		for _, resource := range r.Resources {
			for _, name := range names {
				for _, verb := range r.Verbs {
					list = append(list, MissingPermission{Namespace: r.Namespace, Verb: verb, Group: group, Resource: resource, Name: name, Reason: r.Reason})
				}
			}
		}
	}
	return list
}

func (m *MissingPermission) isDenied(ctx context.Context, kube kubernetes.Interface, s Setup) (bool, error) {
	resource, subresource, _ := strings.Cut(m.Resource, "/")
	review, err := kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + s.Namespace + ":" + s.ServiceAccount,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + s.Namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: m.Namespace, Verb: m.Verb, Group: m.Group, Resource: resource, Subresource: subresource, Name: m.Name,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("check permission to %s: %w", m, err)
	}
	m.DeniedReason = review.Status.Reason
	return !review.Status.Allowed, nil
}
