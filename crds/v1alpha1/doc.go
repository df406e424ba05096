// Package v1alpha1 contains the custom resources of gleaner.dev: policies,
// finalizers, the modules that they evaluate, what is archived and what is
// removed by age or number, budgets, and pauses. The API server validates what it
// can of a single resource, by the CEL rules on the fields. What depends on
// anything else (whether the module exists and compiles, whether the service
// account may read) is reported in status by the operator.
//
// Each kind has a namespaced and a cluster-scoped form with the same spec, except for
// those of nodes, which are cluster-scoped. Rules that apply to one form only are on
// the field spec of that form.
//
// The comments on fields are shown by kubectl explain. "make generate" generates
// the manifests next to this package, and the deep copies in it.
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
	KindGCPolicy               = "GCPolicy"
	KindClusterGCPolicy        = "ClusterGCPolicy"
	KindPolicyModule           = "PolicyModule"
	KindClusterPolicyModule    = "ClusterPolicyModule"
	KindFinalizer              = "Finalizer"
	KindClusterFinalizer       = "ClusterFinalizer"
	KindArchivePolicy          = "ArchivePolicy"
	KindClusterArchivePolicy   = "ClusterArchivePolicy"
	KindPause                  = "Pause"
	KindClusterPause           = "ClusterPause"
	KindDeletionBudget         = "DeletionBudget"
	KindClusterDeletionBudget  = "ClusterDeletionBudget"
	KindRetentionPolicy        = "RetentionPolicy"
	KindClusterRetentionPolicy = "ClusterRetentionPolicy"
	KindNodeRetentionPolicy    = "NodeRetentionPolicy"
	KindNodeRetention          = "NodeRetention"
	KindImageRemovalRequest    = "ImageRemovalRequest"
)

// InUseFinalizer is the finalizer of Finalizers and ClusterFinalizers themselves, which stay
// until what their onRemoval says is done, and of their modules; and of ArchivePolicies and
// ClusterArchivePolicies, which stay until no object waits to be archived.
const InUseFinalizer = "gleaner.dev/in-use"

// GroupVersion is the group and version of all kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "gleaner.dev", Version: "v1alpha1"}

var (
	// SchemeBuilder collects the functions that add the kinds to a scheme.
	SchemeBuilder = runtime.NewSchemeBuilder(addKinds)

	// AddToScheme adds the kinds to a scheme.
	AddToScheme = SchemeBuilder.AddToScheme
)

func addKinds(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&GCPolicy{}, &GCPolicyList{}, &ClusterGCPolicy{}, &ClusterGCPolicyList{},
		&PolicyModule{}, &PolicyModuleList{}, &ClusterPolicyModule{}, &ClusterPolicyModuleList{},
		&Finalizer{}, &FinalizerList{}, &ClusterFinalizer{}, &ClusterFinalizerList{},
		&ArchivePolicy{}, &ArchivePolicyList{}, &ClusterArchivePolicy{}, &ClusterArchivePolicyList{},
		&Pause{}, &PauseList{}, &ClusterPause{}, &ClusterPauseList{},
		&DeletionBudget{}, &DeletionBudgetList{}, &ClusterDeletionBudget{}, &ClusterDeletionBudgetList{},
		&RetentionPolicy{}, &RetentionPolicyList{}, &ClusterRetentionPolicy{}, &ClusterRetentionPolicyList{},
		&NodeRetentionPolicy{}, &NodeRetentionPolicyList{}, &NodeRetention{}, &NodeRetentionList{},
		&ImageRemovalRequest{}, &ImageRemovalRequestList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
