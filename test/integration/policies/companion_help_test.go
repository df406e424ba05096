package policies

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// deleteAsCollector deletes an object as the built-in garbage collector does.
func (o *dedicatedEnv) deleteAsCollector(object *unstructured.Unstructured) error {
	as := o.cluster.RESTConfig()
	as.Impersonate = rest.ImpersonationConfig{UserName: collectorUser, Groups: []string{"system:masters"}}
	background, uid := metav1.DeletePropagationBackground, object.GetUID()
	return dynamic.NewForConfigOrDie(as).Resource(resources[object.GetKind()]).Namespace(o.ns).Delete(o.Context(), object.GetName(),
		metav1.DeleteOptions{PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &uid}})
}

// waitForWebhook waits until the API server calls the webhook when the built-in collector
// deletes ConfigMaps with these labels. It reads the webhook's configuration some time
// after the policy is in force.
func (o *dedicatedEnv) waitForWebhook(labels map[string]string) {
	o.Helper()
	probe := o.createObject("ConfigMap", "probe", labels)
	o.eventually(func() error {
		if o.deleteAsCollector(probe) == nil {
			probe = o.createObject("ConfigMap", "probe", labels)
			return errorf("webhook was not called")
		}
		return nil
	})
	o.forceDelete(probe)
}
