package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Conditions of a NodeRetention.
const (
	// ConditionRuntimeReady reports whether the container runtime answers.
	ConditionRuntimeReady = "RuntimeReady"

	// ConditionUsesKnown reports whether all that may use images has been read. Until it
	// has, images stay.
	ConditionUsesKnown = "UsesKnown"

	// ConditionUsageWithinLimits reports whether the usage of the file system that has
	// the images is within the limits of the policies that are enforced.
	ConditionUsageWithinLimits = "UsageWithinLimits"
)

// Reasons of these conditions.
const (
	ReasonRuntimeAnswers = "RuntimeAnswers" // RuntimeReady: True
	ReasonRuntimeFailed  = "RuntimeFailed"  // RuntimeReady: False
	ReasonNotAsked       = "NotAsked"       // RuntimeReady and UsesKnown: Unknown
	ReasonUsesRead       = "UsesRead"       // UsesKnown: True
	ReasonUsesUnreadable = "UsesUnreadable" // UsesKnown: False
	ReasonUsageLow       = "BelowThreshold" // UsageWithinLimits: True
	ReasonTooLittleFreed = "TooLittleFreed" // UsageWithinLimits: False
	ReasonUsageUnknown   = "UsageUnknown"   // UsageWithinLimits: Unknown
	ReasonNoUsageLimit   = "NoThreshold"    // UsageWithinLimits: True: no policy limits the usage
)

// NodeRetentionPolicySpec is the spec of a NodeRetentionPolicy.
//
// +kubebuilder:validation:XValidation:rule="has(self.images) || has(self.containers)",message="without a limit, nothing is removed: write images, containers or both"
type NodeRetentionPolicySpec struct {
	// Monitor: the NodeRetention of each node shows what would be removed, and nothing
	// is. Enforce: images and containers are removed. Default Monitor.
	//
	// +optional
	// +kubebuilder:default=Monitor
	Mode Mode `json:"mode,omitempty"`

	// Labels of the nodes to select. If not set, all nodes are selected.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="write In or NotIn with values, or Exists or DoesNotExist without, as the operator of each expression"
	NodeSelector *metav1.LabelSelector `json:"nodeSelector,omitempty"`

	// Limits of the images. If not set, there are none. Images that are in use, those
	// of sandboxes and those that the container runtime has pinned are never removed.
	//
	// +optional
	Images *NodeImageLimits `json:"images,omitempty"`

	// Limits of the containers that have exited. If not set, there are none. The last
	// one of each container of a Pod that runs is never removed.
	//
	// +optional
	Containers *NodeContainerLimits `json:"containers,omitempty"`
}

// NodeImageLimits are limits of the images on a node.
//
// +kubebuilder:validation:XValidation:rule="has(self.highThresholdPercent) == has(self.lowThresholdPercent)",message="write both of highThresholdPercent and lowThresholdPercent, such as 85 and 80, or none"
// +kubebuilder:validation:XValidation:rule="!has(self.highThresholdPercent) || !has(self.lowThresholdPercent) || self.lowThresholdPercent < self.highThresholdPercent",fieldPath=".lowThresholdPercent",message="lowThresholdPercent must be lower than highThresholdPercent, such as 80 and 85"
// +kubebuilder:validation:XValidation:rule="has(self.highThresholdPercent) || has(self.maxAge) || has(self.keep) || has(self.evaluatePolicies)",message="without a limit, nothing is removed: write highThresholdPercent and lowThresholdPercent, maxAge, or keep or evaluatePolicies for what other policies must not remove"
type NodeImageLimits struct {
	// Usage of the file system that has the images, in percent, from which images are
	// removed, those first that were not used for the longest time, until the usage is
	// at lowThresholdPercent. If not set, there is no limit. The kubelet calls it
	// imageGCHighThresholdPercent.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	HighThresholdPercent *int32 `json:"highThresholdPercent,omitempty"`

	// Usage, in percent, at which the removal ends. Required with
	// highThresholdPercent. The kubelet calls it imageGCLowThresholdPercent.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=99
	LowThresholdPercent *int32 `json:"lowThresholdPercent,omitempty"`

	// How long an image must have been on the node before any limit removes it, from
	// 0s to 87600h. Default 2m. The kubelet calls it imageMinimumGCAge.
	//
	// +optional
	// +kubebuilder:default="2m"
	MinAge *RetentionDuration `json:"minAge,omitempty"`

	// How long an image can be unused, whatever the usage is, from 1m to 87600h. The
	// time starts when Gleaner starts on the node: it does not know of earlier uses. If
	// not set, there is no limit. The kubelet calls it imageMaximumGCAge.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') || duration(self) >= duration('1m')`,message="write a duration from 1m to 87600h, such as 168h"
	MaxAge *RetentionDuration `json:"maxAge,omitempty"`

	// Names of images that no policy removes from the selected nodes, with or without a
	// tag or digest. The character * stands for any characters, as in
	// registry.example.com/base/*. In mode Enforce only.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=512
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^[A-Za-z0-9*][A-Za-z0-9._:/@*-]*$') && !self.contains('://')`,message="write the name of an image in full, such as registry.example.com/base/* or docker.io/library/busybox"
	// +listType=set
	Keep []string `json:"keep,omitempty"`

	// Whether policies with the hook retain that govern the Node, of the resource nodes,
	// are evaluated before any policy removes an image from the selected nodes. The
	// operator evaluates them; without its answer, images stay. In mode Enforce only.
	// Default false.
	//
	// +optional
	EvaluatePolicies bool `json:"evaluatePolicies,omitempty"`
}

// NodeContainerLimits are limits of the exited containers on a node.
//
// +kubebuilder:validation:XValidation:rule="has(self.maxPerPodContainer) || has(self.maxContainers)",message="without a limit, nothing is removed: write maxPerPodContainer, maxContainers or both"
type NodeContainerLimits struct {
	// How old a container must be, from its creation, before any limit removes it, from
	// 0s to 87600h. Default 0s. The kubelet's flag is minimum-container-ttl-duration.
	//
	// +optional
	MinAge *RetentionDuration `json:"minAge,omitempty"`

	// Number of exited containers that are kept of each container of a Pod, the newest.
	// If not set, there is no limit. The kubelet's flag is
	// maximum-dead-containers-per-container.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	MaxPerPodContainer *int32 `json:"maxPerPodContainer,omitempty"`

	// Maximum number of exited containers on the node. If there are more, fewer than
	// maxPerPodContainer are kept: an equal share of each container of a Pod, at least
	// one, and then the oldest of all are removed. If not set, there is no limit. The
	// kubelet's flag is maximum-dead-containers.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100000
	MaxContainers *int32 `json:"maxContainers,omitempty"`
}

// NodeRetentionSpec is the spec of a NodeRetention. It has no fields.
type NodeRetentionSpec struct{}

// The maximum numbers of items in the status of a NodeRetention.
const (
	MaxNodePolicies       = 32
	MaxNodeNextRemovals   = 10
	MaxNodeRecentRemovals = 20
)

// NodeRetentionStatus is what Gleaner has on a node and does there.
type NodeRetentionStatus struct {
	// Conditions of the node: RuntimeReady, UsesKnown and UsageWithinLimits.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The reason of the first condition that reports a problem. Empty if there is
	// no problem.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// When images and containers were last looked at.
	//
	// +optional
	LastEvaluation *metav1.Time `json:"lastEvaluation,omitempty"`

	// The file system that has the images. Empty if its usage is not known.
	//
	// +optional
	ImageFilesystem *NodeFilesystem `json:"imageFilesystem,omitempty"`

	// The images on the node. Empty until they are listed.
	//
	// +optional
	Images *NodeImages `json:"images,omitempty"`

	// The containers on the node. Empty until they are listed.
	//
	// +optional
	Containers *NodeContainers `json:"containers,omitempty"`

	// The policies that select the node.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=map
	// +listMapKey=name
	Policies []NodePolicy `json:"policies,omitempty"`

	// What is removed next, at most 10: what is due, then what will be if nothing
	// changes.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=10
	// +listType=atomic
	NextRemovals []NodeRemoval `json:"nextRemovals,omitempty"`

	// What was removed last, at most 20, the newest first.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	RecentRemovals []NodeRemoval `json:"recentRemovals,omitempty"`

	// The last failure to remove an image or a container.
	//
	// +optional
	LastFailure *Failure `json:"lastFailure,omitempty"`
}

// NodeFilesystem is a file system of a node.
type NodeFilesystem struct {
	// Size of the file system in bytes.
	CapacityBytes int64 `json:"capacityBytes"`

	// Space that is available in bytes.
	AvailableBytes int64 `json:"availableBytes"`

	// Space that is used, in percent of the size.
	UsedPercent int32 `json:"usedPercent"`
}

// NodeImages is a summary of the images on a node.
type NodeImages struct {
	// Number of images.
	Total int64 `json:"total"`

	// Number of images that are in use.
	InUse int64 `json:"inUse"`

	// Number of images that the limits of the policies remove now. In mode Monitor,
	// they stay.
	Due int64 `json:"due"`

	// Number of images removed since Gleaner started on the node.
	Removed int64 `json:"removed"`

	// Space that these removals freed, in bytes, as the file system reports it.
	FreedBytes int64 `json:"freedBytes"`

	// Number of images that are kept whatever the limits are, by reason: InUse, UseUnknown,
	// Pinned, Protected and MinAge.
	//
	// +optional
	Kept map[string]int64 `json:"kept,omitempty"`
}

// NodeContainers is a summary of the containers on a node.
type NodeContainers struct {
	// Number of containers that have exited.
	Exited int64 `json:"exited"`

	// Number of containers that the limits of the policies remove now. In mode
	// Monitor, they stay.
	Due int64 `json:"due"`

	// Number of containers removed since Gleaner started on the node.
	Removed int64 `json:"removed"`

	// Number of containers that are kept whatever the limits are, by reason: Protected and
	// MinAge.
	//
	// +optional
	Kept map[string]int64 `json:"kept,omitempty"`
}

// NodePolicy is a policy that selects a node.
type NodePolicy struct {
	// The name of the NodeRetentionPolicy.
	Name string `json:"name"`

	// The generation of its spec that is in force on the node.
	Generation int64 `json:"generation"`

	// The mode of the policy.
	Mode Mode `json:"mode"`
}

// NodeRemovalType says what is removed from a node.
//
// +kubebuilder:validation:Enum=Image;Container
type NodeRemovalType string

// What is removed from a node.
const (
	NodeRemovalImage     NodeRemovalType = "Image"
	NodeRemovalContainer NodeRemovalType = "Container"
)

// NodeRemoval is an image or a container that is removed from a node.
type NodeRemoval struct {
	// Image or Container.
	Type NodeRemovalType `json:"type"`

	// The name of the image, or namespace/pod/container.
	//
	// +kubebuilder:validation:MaxLength=1024
	Name string `json:"name"`

	// The ID of the image or the container.
	//
	// +kubebuilder:validation:MaxLength=256
	ID string `json:"id"`

	// The size of the image in bytes, as the container runtime reports it.
	//
	// +optional
	SizeBytes int64 `json:"sizeBytes,omitempty"`

	// The NodeRetentionPolicy that removes it.
	Policy string `json:"policy"`

	// The limit that removes it: MaxUnused, Usage, KeepLast or MaxTotal. Empty if it is
	// not due yet.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// When it was removed, or when it is removed if nothing changes before. Empty if it
	// is due now.
	//
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
}
