package watch

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	apiregistration "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
)

// LocalVersions returns a function for Options.APIServices. It reads the
// cluster's API services: those without a service to forward to are served by
// kube-apiserver itself, custom resources among them. API services are, too:
// theirs is the one API that has no such object.
func LocalVersions(client aggregator.Interface) func(context.Context) (map[schema.GroupVersion]bool, error) {
	return func(ctx context.Context) (map[schema.GroupVersion]bool, error) {
		services, err := client.ApiregistrationV1().APIServices().List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, fmt.Errorf("list API services: %w", err)
		}
		local := make(map[schema.GroupVersion]bool, len(services.Items)+1)
		local[apiregistration.SchemeGroupVersion] = true
		for i := range services.Items {
			spec := &services.Items[i].Spec
			if spec.Service == nil && spec.Version != "" {
				local[schema.GroupVersion{Group: spec.Group, Version: spec.Version}] = true
			}
		}
		return local, nil
	}
}
