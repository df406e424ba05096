package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// RetentionPolicy removes objects in its namespace by age, number or disuse.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=retentionpolicies,singular=retentionpolicy,shortName=retpol,categories=gleaner
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.selected`
// +kubebuilder:printcolumn:name="Due",type=integer,JSONPath=`.status.due`
// +kubebuilder:printcolumn:name="Removed",type=integer,JSONPath=`.status.removed`
// +kubebuilder:printcolumn:name="Enforcing",type=string,JSONPath=`.status.conditions[?(@.type=="Enforcing")].status`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type RetentionPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired policy.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.namespaceSelector)",fieldPath=".namespaceSelector",reason=FieldValueForbidden,message="a RetentionPolicy selects objects in its own namespace only: remove namespaceSelector, or create a ClusterRetentionPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchConditions) || self.matchConditions.size() == 0",fieldPath=".matchConditions",reason=FieldValueForbidden,message="expressions see whole objects, which the author of a RetentionPolicy may not be allowed to read: use objectSelector, or create a ClusterRetentionPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.finishedAt)",fieldPath=".finishedAt",reason=FieldValueForbidden,message="expressions see whole objects, which the author of a RetentionPolicy may not be allowed to read: remove finishedAt, or create a ClusterRetentionPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.groupBy) || self.groupBy.type != 'Expression'",fieldPath=".groupBy",reason=FieldValueForbidden,message="expressions see whole objects, which the author of a RetentionPolicy may not be allowed to read: group by Owner, Namespace or Label, or create a ClusterRetentionPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.references) || self.references.size() == 0",fieldPath=".references",reason=FieldValueForbidden,message="references are for all policies: remove references, or write them in a ClusterRetentionPolicy"
	Spec RetentionPolicySpec `json:"spec"`

	// The observed state of the policy.
	//
	// +optional
	Status RetentionPolicyStatus `json:"status,omitempty"`
}

// RetentionPolicyList is a list of RetentionPolicies.
//
// +kubebuilder:object:root=true
type RetentionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []RetentionPolicy `json:"items"`
}

// ClusterRetentionPolicy removes objects in any namespace, or cluster-scoped objects, by
// age, number or disuse.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=clusterretentionpolicies,singular=clusterretentionpolicy,scope=Cluster,shortName=cretpol,categories=gleaner
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Selected",type=integer,JSONPath=`.status.selected`
// +kubebuilder:printcolumn:name="Due",type=integer,JSONPath=`.status.due`
// +kubebuilder:printcolumn:name="Removed",type=integer,JSONPath=`.status.removed`
// +kubebuilder:printcolumn:name="Enforcing",type=string,JSONPath=`.status.conditions[?(@.type=="Enforcing")].status`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterRetentionPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired policy.
	Spec RetentionPolicySpec `json:"spec"`

	// The observed state of the policy.
	//
	// +optional
	Status RetentionPolicyStatus `json:"status,omitempty"`
}

// ClusterRetentionPolicyList is a list of ClusterRetentionPolicies.
//
// +kubebuilder:object:root=true
type ClusterRetentionPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterRetentionPolicy `json:"items"`
}
