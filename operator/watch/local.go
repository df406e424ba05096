package watch

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
)

// Services are the API services of a cluster, by group and version.
type Services struct {
	// Local are those that kube-apiserver serves itself, custom resources among them.
	Local map[schema.GroupVersion]bool

	// Promised are those of CustomResourceDefinitions and of other API servers: there are
	// objects of their types, whether or not they are served at this moment. An API
	// server that has just started does not name them yet.
	Promised map[schema.GroupVersion]bool
}

// automanaged is the label of API services that kube-apiserver keeps for its own
// types, and its value where it does so for CustomResourceDefinitions: those go with
// the last definition.
const (
	automanaged   = "kube-aggregator.kubernetes.io/automanaged"
	ofDefinitions = "true"
)

// ReadServices returns a function for Options.APIServices. API services are served by
// kube-apiserver itself, too: theirs is the one API that has no such object.
func ReadServices(client aggregator.Interface) func(context.Context) (Services, error) {
	return func(ctx context.Context) (Services, error) {
		list, err := client.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
		if err != nil {
			return Services{}, fmt.Errorf("list API services: %w", err)
		}
		s := Services{Local: map[schema.GroupVersion]bool{apiregistration.SchemeGroupVersion: true}, Promised: map[schema.GroupVersion]bool{}}
		for i := range list.Items {
			spec := &list.Items[i].Spec
			gv := schema.GroupVersion{Group: spec.Group, Version: spec.Version}
			if gv.Version == "" {
				continue
			}
			if spec.Service == nil {
				s.Local[gv] = true
			}
			if spec.Service != nil || list.Items[i].Labels[automanaged] == ofDefinitions {
				s.Promised[gv] = true
			}
		}
		return s, nil
	}
}
