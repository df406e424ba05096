package v1alpha1

import (
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// OnFailure says what happens to an object that could not be archived.
//
// +kubebuilder:validation:Enum=Hold;Continue
type OnFailure string

// What happens to an object that could not be archived.
const (
	OnFailureHold     OnFailure = "Hold"     // it is kept until it is archived
	OnFailureContinue OnFailure = "Continue" // it is deleted all the same
)

// DeletedBy says whose deletions are archived.
//
// +kubebuilder:validation:Enum=Anyone;Gleaner
type DeletedBy string

// Whose deletions are archived.
const (
	DeletedByAnyone  DeletedBy = "Anyone"  // objects get a finalizer in advance
	DeletedByGleaner DeletedBy = "Gleaner" // nothing is written in advance
)

// MaxArchivePolicyName is the maximum length of the name of an ArchivePolicy, which is part of a
// finalizer.
const MaxArchivePolicyName = 63

// ArchivePolicySpec is the spec of ArchivePolicy and ClusterArchivePolicy.
//
// +kubebuilder:validation:XValidation:rule="has(self.deletedBy) && self.deletedBy == 'Gleaner' || self.resources.all(r, !('*' in r.apiGroups) && !('*' in r.resources))",fieldPath=".resources",message="archiving what anyone deletes writes every object in advance, so it cannot select *: list groups and resources by name, or write deletedBy: Gleaner"
// +kubebuilder:validation:XValidation:rule=`has(self.deletedBy) && self.deletedBy == 'Gleaner' || self.resources.all(r, ![["", "namespaces"], ["apiextensions.k8s.io", "customresourcedefinitions"], ["apiregistration.k8s.io", "apiservices"]].exists(x, x[0] in r.apiGroups && x[1] in r.resources))`,fieldPath=".resources",message="archiving what anyone deletes writes every object in advance, so it cannot select namespaces, customresourcedefinitions or apiservices: remove those resources, or write deletedBy: Gleaner"
// +kubebuilder:validation:XValidation:rule="has(self.deletedBy) && self.deletedBy == 'Gleaner' || self.resources.all(r, !('admissionregistration.k8s.io' in r.apiGroups) && !('gleaner.dev' in r.apiGroups))",fieldPath=".resources",message="archiving what anyone deletes writes every object in advance, so it cannot select the groups admissionregistration.k8s.io and gleaner.dev: remove those groups, or write deletedBy: Gleaner"
type ArchivePolicySpec struct {
	// Resources whose objects are archived, as in admission rules. Pods, nodes,
	// leases, events, endpoints and endpointslices are archived only when Gleaner
	// deletes them, and Secrets only if there are recipients.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Resources []ResourceRule `json:"resources"`

	// Labels of the namespaces whose objects are archived. If not set, objects in
	// all namespaces and cluster-scoped objects are archived. For a
	// ClusterArchivePolicy only.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="write In or NotIn with values, or Exists or DoesNotExist without, as the operator of each expression"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Labels of the objects that are archived. If not set, all objects are
	// archived.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="write In or NotIn with values, or Exists or DoesNotExist without, as the operator of each expression"
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`

	// How long an archived object can be restored, from 1m to 17520h. If the
	// archive is full, the oldest objects are removed earlier. Default 168h.
	//
	// +optional
	// +kubebuilder:default="168h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') && duration(self) >= duration('1m') && duration(self) <= duration('17520h')`,message="write a duration from 1m to 17520h, such as 168h for a week"
	TTL *metav1.Duration `json:"ttl,omitempty"`

	// What happens to an object that cannot be archived. Hold keeps the object until
	// it is archived, and reports why; Continue lets it be deleted, and reports that.
	// Default Hold.
	//
	// +optional
	// +kubebuilder:default=Hold
	OnFailure OnFailure `json:"onFailure,omitempty"`

	// Whose deletions are archived. Anyone: objects get a finalizer, which is removed
	// after they are deleted and archived, except in kube-system and in Gleaner's own
	// namespace. Gleaner: only objects that Gleaner deletes are archived, and nothing is
	// written to objects. Default Anyone.
	//
	// +optional
	// +kubebuilder:default=Anyone
	DeletedBy DeletedBy `json:"deletedBy,omitempty"`

	// Public keys that archived objects are encrypted to, as age or ssh-keygen print
	// them: age1…, ssh-ed25519 … or ssh-rsa …. Restoring takes the private key of one
	// of them, which Gleaner does not have. If empty, archived objects are not
	// encrypted, and Secrets are not archived.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=2048
	// +kubebuilder:validation:items:XValidation:rule=`!self.startsWith('AGE-SECRET-KEY-') && !self.contains('PRIVATE KEY')`,message="this is a private key, which Gleaner must not have: make a new one, keep it to yourself, and write its public key, which age-keygen -y FILE prints"
	// +kubebuilder:validation:items:XValidation:rule=`self.startsWith('AGE-SECRET-KEY-') || self.contains('PRIVATE KEY') || self.matches('^(age1(pq1)?[02-9ac-hj-np-z]{58,}|(ssh-ed25519|ssh-rsa) AAAA[0-9A-Za-z+/]+={0,2}( .*)?)$')`,message="write a public key, such as age1… of age-keygen, or the content of a file id_ed25519.pub or id_rsa.pub"
	// +listType=set
	Recipients []string `json:"recipients,omitempty"`
}

// ArchivePolicyStatus is the status of ArchivePolicy and ClusterArchivePolicy.
type ArchivePolicyStatus struct {
	// Conditions of the policy: Accepted, Archiving and Attached.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The generation of the spec that this status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The reason of the first condition that reports a problem. Empty if there is
	// no problem.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// The finalizer that keeps objects until they are archived. Empty if no object
	// has one.
	//
	// +optional
	Finalizer string `json:"finalizer,omitempty"`

	// Number of objects archived for this policy since Gleaner started.
	//
	// +optional
	Archived int64 `json:"archived,omitempty"`

	// Size of what was archived for this policy since Gleaner started, in bytes, as
	// stored: compressed, and encrypted if there are recipients.
	//
	// +optional
	Bytes int64 `json:"bytes,omitempty"`

	// Number of objects that are being deleted and are not archived yet.
	//
	// +optional
	Held int64 `json:"held,omitempty"`

	// Number of objects that were deleted without being archived since Gleaner
	// started, because archiving failed and onFailure is Continue.
	//
	// +optional
	Missed int64 `json:"missed,omitempty"`

	// The last failure to archive an object, even if it was archived later.
	//
	// +optional
	LastFailure *Failure `json:"lastFailure,omitempty"`

	// The objects that have been waiting to be archived the longest, since it failed,
	// at most 20.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	StalledObjects []StalledObject `json:"stalledObjects,omitempty"`
}

// Failure is a failed attempt to archive or to remove an object.
type Failure struct {
	// The time of the failure.
	Time metav1.Time `json:"time"`

	// The object and the error, for people. At most 1024 bytes.
	//
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message"`
}

// MaxFailureMessage is the maximum size of the message of a Failure, in bytes.
const MaxFailureMessage = 1024

// The domains of the finalizers of archive policies. That of a ClusterArchivePolicy has two
// labels before the group, so that it is not the one of a Finalizer in any namespace.
const (
	clusterArchiveDomain = "archive.cluster.gleaner.dev"
	archiveDomain        = ".archive.gleaner.dev"
)

// ArchiveFinalizer returns the finalizer of the objects of an ArchivePolicy, or of a
// ClusterArchivePolicy if the namespace is "".
func ArchiveFinalizer(namespace, name string) string {
	if namespace == "" {
		return clusterArchiveDomain + "/" + name
	}
	return namespace + archiveDomain + "/" + name
}

// ParseArchiveFinalizer returns the archive policy that an entry of metadata.finalizers belongs
// to; namespace is "" for a ClusterArchivePolicy. It returns false if the entry is of another kind.
func ParseArchiveFinalizer(entry string) (namespace, name string, ok bool) {
	domain, name, _ := strings.Cut(entry, "/")
	if domain == clusterArchiveDomain {
		return "", name, name != ""
	}
	namespace, ok = strings.CutSuffix(domain, archiveDomain)
	if !ok || namespace == "" || name == "" || strings.Contains(namespace, ".") {
		return "", "", false
	}
	return namespace, name, true
}
