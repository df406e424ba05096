package rights

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

const asksAtOnce = 8

// Missing is a right that the operator's service account does not have.
type Missing struct {
	Namespace string `json:"namespace,omitempty"` // none: everywhere
	Verb      string `json:"verb"`
	Group     string `json:"group"`
	Resource  string `json:"resource"`
	Name      string `json:"name,omitempty"`
	Why       string `json:"why"`            // it is needed
	Said      string `json:"said,omitempty"` // by whoever refused it
}

// String says what is missing, as kubectl auth can-i would.
func (m Missing) String() string {
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

// Fold puts together what differs by the verb only, for people to read.
func Fold(missing []Missing) []Missing {
	var folded []Missing
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

// Check asks the API server which of the rights the service account has not.
func Check(ctx context.Context, kube kubernetes.Interface, s Setup, rights []Right) ([]Missing, error) {
	var asked []Missing
	for _, r := range needless(rights) {
		asked = append(asked, each(r)...)
	}
	refused := make([]bool, len(asked))
	var group errgroup.Group
	group.SetLimit(asksAtOnce)
	for i := range asked {
		group.Go(func() (err error) {
			refused[i], err = asked[i].refused(ctx, kube, s)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	var missing []Missing
	for i, m := range asked {
		if refused[i] && !slices.ContainsFunc(missing, func(o Missing) bool { return o.String() == m.String() }) {
			missing = append(missing, m)
		}
	}
	return missing, nil
}

// each takes a right apart.
func each(r Right) []Missing {
	names := r.Names
	if len(names) == 0 {
		names = []string{""}
	}
	var list []Missing
	for _, group := range r.Groups {
		for _, resource := range r.Resources {
			for _, name := range names {
				for _, verb := range r.Verbs {
					list = append(list, Missing{Namespace: r.Namespace, Verb: verb, Group: group, Resource: resource, Name: name, Why: r.Why})
				}
			}
		}
	}
	return list
}

func (m *Missing) refused(ctx context.Context, kube kubernetes.Interface, s Setup) (bool, error) {
	resource, subresource, _ := strings.Cut(m.Resource, "/")
	review, err := kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
		Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + s.Namespace + ":" + s.Account,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + s.Namespace, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: m.Namespace, Verb: m.Verb, Group: m.Group, Resource: resource, Subresource: subresource, Name: m.Name,
			},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return false, fmt.Errorf("ask whether the operator may %s: %w", m, err)
	}
	m.Said = review.Status.Reason
	return !review.Status.Allowed, nil
}
