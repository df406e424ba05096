package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// ImageRemovalRequestSpec is the spec of an ImageRemovalRequest.
type ImageRemovalRequestSpec struct {
	// The node that has the image.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	NodeName string `json:"nodeName"`

	// The image.
	Image NodeImage `json:"image"`

	// The NodeRetentionPolicy that removes the image.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Policy string `json:"policy"`

	// The limit that removes the image: MaxUnused or Usage.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=64
	Limit string `json:"limit"`
}

// The maximum numbers of items of a NodeImage, and the maximum size of each in bytes.
const (
	MaxImageNames  = 64
	MaxImageLabels = 64
	MaxImageName   = 512
	MaxImageLabel  = 1024
)

// NodeImage is a container image on a node.
type NodeImage struct {
	// The ID of the image.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	ID string `json:"id"`

	// The names of the image on the node, by tag and by digest.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=512
	// +listType=atomic
	Names []string `json:"names,omitempty"`

	// The labels in the configuration of the image, without those that are longer than
	// 1024 bytes.
	//
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]ImageLabel `json:"labels,omitempty"`

	// The size of the image in bytes, as the container runtime reports it.
	//
	// +kubebuilder:validation:Minimum=0
	SizeBytes int64 `json:"sizeBytes"`

	// When Gleaner first saw the image on the node.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	// +kubebuilder:validation:MaxLength=64
	FirstSeen metav1.Time `json:"firstSeen"`

	// When the image was last seen in use. Empty if Gleaner has never seen that.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Format=date-time
	// +kubebuilder:validation:MaxLength=64
	LastUsed *metav1.Time `json:"lastUsed,omitempty"`
}

// ImageLabel is the value of a label in the configuration of an image.
//
// +kubebuilder:validation:MaxLength=1024
type ImageLabel string

// ImageRemovalDecision is the decision about an ImageRemovalRequest.
//
// +kubebuilder:validation:Enum=Remove;Keep
type ImageRemovalDecision string

// The decisions. The empty one keeps the image.
const (
	ImageRemove ImageRemovalDecision = "Remove"
	ImageKeep   ImageRemovalDecision = "Keep"
)

// ImageRemovalRequestStatus is the answer to an ImageRemovalRequest.
type ImageRemovalRequestStatus struct {
	// Remove: the image is removed if nothing uses it then. Keep: it stays. Empty until
	// it is decided.
	//
	// +optional
	Decision ImageRemovalDecision `json:"decision,omitempty"`

	// What has decided, such as ClusterGCPolicy keep-base-images. Empty if no policy has.
	//
	// +optional
	DecidedBy string `json:"decidedBy,omitempty"`

	// Why the image stays.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// How long the image stays, with Keep, before its removal is requested again.
	//
	// +optional
	After Duration `json:"after,omitempty"`
}

// ImageRemovalRequest asks whether an image can be removed from a node. Gleaner on the node
// creates it if a NodeRetentionPolicy says evaluatePolicies, and deletes it when it has been
// answered; the operator evaluates the policies with the hook retain that govern the Node, and
// answers in the status.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=imageremovalrequests,singular=imageremovalrequest,scope=Cluster,shortName=irr
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.nodeName`
// +kubebuilder:printcolumn:name="Image",type=string,JSONPath=`.spec.image.names[0]`
// +kubebuilder:printcolumn:name="Policy",type=string,JSONPath=`.spec.policy`
// +kubebuilder:printcolumn:name="Limit",type=string,JSONPath=`.spec.limit`
// +kubebuilder:printcolumn:name="Decision",type=string,JSONPath=`.status.decision`
// +kubebuilder:printcolumn:name="Decided By",type=string,JSONPath=`.status.decidedBy`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ImageRemovalRequest struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The removal that is requested. Immutable.
	//
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable: create another ImageRemovalRequest"
	Spec ImageRemovalRequestSpec `json:"spec"`

	// The answer.
	//
	// +optional
	Status ImageRemovalRequestStatus `json:"status,omitempty"`
}

// ImageRemovalRequestList is a list of ImageRemovalRequests.
//
// +kubebuilder:object:root=true
type ImageRemovalRequestList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ImageRemovalRequest `json:"items"`
}
