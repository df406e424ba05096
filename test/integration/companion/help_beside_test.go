package policies

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// asCollector deletes an object as the other collector does.
func (o *operation) asCollector(object *unstructured.Unstructured) error {
	as := o.cluster.RESTConfig()
	as.Impersonate = rest.ImpersonationConfig{UserName: collectorUser, Groups: []string{"system:masters"}}
	background, uid := metav1.DeletePropagationBackground, object.GetUID()
	return dynamic.NewForConfigOrDie(as).Resource(resources[object.GetKind()]).Namespace(o.ns).Delete(o.Context(), object.GetName(),
		metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid}})
}

// asksAbout waits until the API server asks about what the other collector deletes of
// ConfigMaps with labels. It hears of the webhook a moment after the policy is in
// force.
func (o *operation) asksAbout(labels map[string]string) {
	o.Helper()
	probe := o.object("ConfigMap", "probe", labels)
	o.eventually(func() error {
		if o.asCollector(probe) == nil {
			probe = o.object("ConfigMap", "probe", labels)
			return errorf("nobody is asked")
		}
		return nil
	})
	o.remove(probe)
}
