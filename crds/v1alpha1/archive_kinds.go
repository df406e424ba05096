package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ArchivePolicy archives objects in its namespace before they are deleted, so that they
// can be restored.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=archivepolicies,singular=archivepolicy,shortName=archpol,categories=gleaner
// +kubebuilder:printcolumn:name="TTL",type=string,JSONPath=`.spec.ttl`
// +kubebuilder:printcolumn:name="Archived",type=integer,JSONPath=`.status.archived`
// +kubebuilder:printcolumn:name="Held",type=integer,JSONPath=`.status.held`
// +kubebuilder:printcolumn:name="Archiving",type=string,JSONPath=`.status.conditions[?(@.type=="Archiving")].status`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,priority=1
// +kubebuilder:printcolumn:name="On-Failure",type=string,JSONPath=`.spec.onFailure`,priority=1
// +kubebuilder:printcolumn:name="Deleted-By",type=string,JSONPath=`.spec.deletedBy`,priority=1
// +kubebuilder:printcolumn:name="Finalizer",type=string,JSONPath=`.status.finalizer`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the name is part of a finalizer, at most 63 characters: write a shorter metadata.name"
type ArchivePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired policy.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.namespaceSelector)",fieldPath=".namespaceSelector",reason=FieldValueForbidden,message="an ArchivePolicy archives objects in its own namespace only: remove namespaceSelector, or create a ClusterArchivePolicy"
	// +kubebuilder:validation:XValidation:rule="self.resources.all(r, !('*' in r.apiGroups) && !('*' in r.resources))",fieldPath=".resources",message="an ArchivePolicy cannot select *: list groups and resources by name, or create a ClusterArchivePolicy"
	Spec ArchivePolicySpec `json:"spec"`

	// The observed state of the policy.
	//
	// +optional
	Status ArchivePolicyStatus `json:"status,omitempty"`
}

// ArchivePolicyList is a list of ArchivePolicies.
//
// +kubebuilder:object:root=true
type ArchivePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ArchivePolicy `json:"items"`
}

// ClusterArchivePolicy archives objects in any namespace, and cluster-scoped objects,
// before they are deleted, so that they can be restored.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=clusterarchivepolicies,singular=clusterarchivepolicy,scope=Cluster,shortName=carchpol,categories=gleaner
// +kubebuilder:printcolumn:name="TTL",type=string,JSONPath=`.spec.ttl`
// +kubebuilder:printcolumn:name="Archived",type=integer,JSONPath=`.status.archived`
// +kubebuilder:printcolumn:name="Held",type=integer,JSONPath=`.status.held`
// +kubebuilder:printcolumn:name="Archiving",type=string,JSONPath=`.status.conditions[?(@.type=="Archiving")].status`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,priority=1
// +kubebuilder:printcolumn:name="On-Failure",type=string,JSONPath=`.spec.onFailure`,priority=1
// +kubebuilder:printcolumn:name="Deleted-By",type=string,JSONPath=`.spec.deletedBy`,priority=1
// +kubebuilder:printcolumn:name="Finalizer",type=string,JSONPath=`.status.finalizer`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the name is part of a finalizer, at most 63 characters: write a shorter metadata.name"
type ClusterArchivePolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired policy.
	Spec ArchivePolicySpec `json:"spec"`

	// The observed state of the policy.
	//
	// +optional
	Status ArchivePolicyStatus `json:"status,omitempty"`
}

// ClusterArchivePolicyList is a list of ClusterArchivePolicies.
//
// +kubebuilder:object:root=true
type ClusterArchivePolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterArchivePolicy `json:"items"`
}
