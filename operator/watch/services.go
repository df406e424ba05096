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
	// Local are those that kube-apiserver serves itself, including custom resources.
	Local map[schema.GroupVersion]bool

	// Expected are those of CustomResourceDefinitions and of aggregated API servers: their
	// types may have objects even if discovery does not return them now. An API server
	// that has just started does not serve them yet.
	Expected map[schema.GroupVersion]bool
}

// automanaged is the label of API services that kube-apiserver maintains for its own
// types, and automanagedByDefinition its value for those of CustomResourceDefinitions, which are
// removed with the last definition.
const (
	automanaged             = "kube-aggregator.kubernetes.io/automanaged"
	automanagedByDefinition = "true"
)

// ReadServices returns a function for Options.APIServices. kube-apiserver itself also
// serves the API of API services, which is the only one without an APIService object.
func ReadServices(client aggregator.Interface) func(context.Context) (Services, error) {
	return func(ctx context.Context) (Services, error) {
		list, err := client.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
		if err != nil {
			return Services{}, fmt.Errorf("list API services: %w", err)
		}
		s := Services{Local: map[schema.GroupVersion]bool{apiregistration.SchemeGroupVersion: true}, Expected: map[schema.GroupVersion]bool{}}
		for i := range list.Items {
			spec := &list.Items[i].Spec
			gv := schema.GroupVersion{Group: spec.Group, Version: spec.Version}
			if gv.Version == "" {
				continue
			}
			if spec.Service == nil {
				s.Local[gv] = true
			}
			if spec.Service != nil || list.Items[i].Labels[automanaged] == automanagedByDefinition {
				s.Expected[gv] = true
			}
		}
		return s, nil
	}
}
