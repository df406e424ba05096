// Package v1alpha1 holds the custom resources of gleaner.dev: policies, and the
// modules that decide for them. What can be checked of one resource on its own is
// checked by the API server, with the CEL rules beside the fields; what takes a
// look elsewhere (is the module there, does it compile, may the account read) is
// told in status by whoever looks.
//
// Each kind has a namespaced and a cluster form with one spec. The rules that
// differ stand at the field spec of each form.
//
// The comments on fields are what kubectl explain shows. "make generate" makes
// the manifests beside this package, and the deep copies in it.
//
// +kubebuilder:object:generate=true
// +groupName=gleaner.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The names of the kinds.
const (
	KindGCPolicy            = "GCPolicy"
	KindClusterGCPolicy     = "ClusterGCPolicy"
	KindPolicyModule        = "PolicyModule"
	KindClusterPolicyModule = "ClusterPolicyModule"
	KindFinalizer           = "Finalizer"
	KindClusterFinalizer    = "ClusterFinalizer"
)

// GroupVersion is the group and version of all kinds here.
var GroupVersion = schema.GroupVersion{Group: "gleaner.dev", Version: "v1alpha1"}

var (
	// SchemeBuilder collects what adds the kinds to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKinds)

	// AddToScheme adds the kinds to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKinds(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&GCPolicy{}, &GCPolicyList{}, &ClusterGCPolicy{}, &ClusterGCPolicyList{},
		&PolicyModule{}, &PolicyModuleList{}, &ClusterPolicyModule{}, &ClusterPolicyModuleList{},
		&Finalizer{}, &FinalizerList{}, &ClusterFinalizer{}, &ClusterFinalizerList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
