package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ConditionInForce (pauses) reports whether the pause stops anything.
const ConditionInForce = "InForce"

// Reasons of the condition InForce.
const (
	ReasonPaused  = "Paused"  // True: since it was observed, nothing in its scope is deleted
	ReasonExpired = "Expired" // False: spec.until has passed
)

// MaxPauseReason is the maximum size of the reason of a Pause, in bytes.
const MaxPauseReason = 256

// PauseSpec is the spec of Pause and ClusterPause.
type PauseSpec struct {
	// The policy or finalizer that is paused: only what it has decided is stopped. If not
	// set, whatever Gleaner deletes is stopped.
	//
	// +optional
	Policy *PausedPolicy `json:"policy,omitempty"`

	// When the pause ends. If not set, it lasts until it is deleted.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	// +kubebuilder:validation:MaxLength=64
	Until *metav1.Time `json:"until,omitempty"`

	// Why nothing may be deleted, for the people who will see it. At most 256 bytes.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=256
	Reason string `json:"reason,omitempty"`
}

// PausedPolicy refers to the policy or finalizer that is paused. It does not have to exist.
//
// +kubebuilder:validation:XValidation:rule="self.kind in ['ClusterGCPolicy', 'ClusterFinalizer'] ? !has(self.namespace) || self.namespace.size() == 0 : true",fieldPath=".namespace",reason=FieldValueForbidden,message="a ClusterGCPolicy or ClusterFinalizer has no namespace: remove namespace, or write kind: GCPolicy or kind: Finalizer"
type PausedPolicy struct {
	// The kind: GCPolicy, ClusterGCPolicy, Finalizer or ClusterFinalizer.
	//
	// +kubebuilder:validation:Enum=GCPolicy;ClusterGCPolicy;Finalizer;ClusterFinalizer
	Kind string `json:"kind"`

	// The namespace of a GCPolicy or Finalizer. For a Pause, it is the one of the Pause.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// The name.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// PauseStatus is the status of Pause and ClusterPause.
type PauseStatus struct {
	// Conditions of the pause: InForce.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The generation of the spec that this status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// Pause stops what Gleaner deletes, orphans and requests in its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=pauses,singular=pause,categories=gleaner
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policy.name`
// +kubebuilder:printcolumn:name="Until",type=string,JSONPath=`.spec.until`
// +kubebuilder:printcolumn:name="In-Force",type=string,JSONPath=`.status.conditions[?(@.type=="InForce")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Pause struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is paused, and until when. If empty, everything in the namespace is paused
	// until the Pause is deleted.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.policy) || !has(self.policy.namespace) || self.policy.namespace.size() == 0",fieldPath=".policy.namespace",reason=FieldValueForbidden,message="a Pause stops what is in its own namespace: remove namespace, or create a ClusterPause"
	Spec PauseSpec `json:"spec,omitempty"`

	// The observed state of the pause.
	//
	// +optional
	Status PauseStatus `json:"status,omitempty"`
}

// PauseList is a list of Pauses.
//
// +kubebuilder:object:root=true
type PauseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Pause `json:"items"`
}

// ClusterPause stops what Gleaner deletes, orphans and requests in the whole cluster.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=clusterpauses,singular=clusterpause,scope=Cluster,categories=gleaner
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policy.name`
// +kubebuilder:printcolumn:name="Until",type=string,JSONPath=`.spec.until`
// +kubebuilder:printcolumn:name="In-Force",type=string,JSONPath=`.status.conditions[?(@.type=="InForce")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.spec.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterPause struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is paused, and until when. If empty, everything is paused until the
	// ClusterPause is deleted.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.policy) || !(self.policy.kind in ['GCPolicy', 'Finalizer']) || has(self.policy.namespace) && self.policy.namespace.size() > 0",fieldPath=".policy.namespace",reason=FieldValueRequired,message="write the namespace of the GCPolicy or Finalizer"
	Spec PauseSpec `json:"spec,omitempty"`

	// The observed state of the pause.
	//
	// +optional
	Status PauseStatus `json:"status,omitempty"`
}

// ClusterPauseList is a list of ClusterPauses.
//
// +kubebuilder:object:root=true
type ClusterPauseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterPause `json:"items"`
}
