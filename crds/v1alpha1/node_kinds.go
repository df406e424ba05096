package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// NodeRetentionPolicy removes unused images and exited containers from nodes.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=noderetentionpolicies,singular=noderetentionpolicy,scope=Cluster,shortName=noderetpol,categories=gleaner
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="High",type=integer,JSONPath=`.spec.images.highThresholdPercent`
// +kubebuilder:printcolumn:name="Low",type=integer,JSONPath=`.spec.images.lowThresholdPercent`
// +kubebuilder:printcolumn:name="Max Age",type=string,JSONPath=`.spec.images.maxAge`
// +kubebuilder:printcolumn:name="Per Container",type=integer,JSONPath=`.spec.containers.maxPerPodContainer`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type NodeRetentionPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired policy. What it does on a node is in the status of the
	// NodeRetention with the name of the node.
	Spec NodeRetentionPolicySpec `json:"spec"`
}

// NodeRetentionPolicyList is a list of NodeRetentionPolicies.
//
// +kubebuilder:object:root=true
type NodeRetentionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeRetentionPolicy `json:"items"`
}

// NodeRetention is what Gleaner has removed from the node with the same name, and removes
// next. Gleaner creates it, and it is deleted with the node.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=noderetentions,singular=noderetention,scope=Cluster,shortName=noderet,categories=gleaner
// +kubebuilder:printcolumn:name="Used %",type=integer,JSONPath=`.status.imageFilesystem.usedPercent`
// +kubebuilder:printcolumn:name="Images",type=integer,JSONPath=`.status.images.total`
// +kubebuilder:printcolumn:name="Due",type=integer,JSONPath=`.status.images.due`
// +kubebuilder:printcolumn:name="Removed",type=integer,JSONPath=`.status.images.removed`
// +kubebuilder:printcolumn:name="Exited",type=integer,JSONPath=`.status.containers.exited`
// +kubebuilder:printcolumn:name="Containers Removed",type=integer,JSONPath=`.status.containers.removed`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Evaluated",type=date,JSONPath=`.status.lastEvaluation`
type NodeRetention struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// It has no fields.
	//
	// +optional
	Spec NodeRetentionSpec `json:"spec,omitempty"`

	// The observed state of the node.
	//
	// +optional
	Status NodeRetentionStatus `json:"status,omitempty"`
}

// NodeRetentionList is a list of NodeRetentions.
//
// +kubebuilder:object:root=true
type NodeRetentionList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []NodeRetention `json:"items"`
}
