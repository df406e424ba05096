package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Removal says what happens to a finalizer whose work is not finished.
//
// +kubebuilder:validation:Enum=Hold;Release
type Removal string

// The removal policies.
const (
	RemovalHold    Removal = "Hold"    // the finalizer stays on its objects, which are kept
	RemovalRelease Removal = "Release" // the finalizer is removed, even if its work is not finished
)

// FinalizerSpec is the spec of Finalizer and ClusterFinalizer.
//
// +kubebuilder:validation:XValidation:rule="!has(self.grants) || has(self.serviceAccount)",fieldPath=".serviceAccount",reason=FieldValueRequired,message="grants need a service account: set serviceAccount, or remove grants"
// +kubebuilder:validation:XValidation:rule="self.resources.all(r, !('*' in r.apiGroups) && !('*' in r.resources))",fieldPath=".resources",message="a finalizer cannot select *: list groups and resources by name"
// +kubebuilder:validation:XValidation:rule=`!has(self.attach) || !self.attach || self.resources.all(r, ![["", "pods"], ["", "nodes"], ["", "events"], ["", "endpoints"], ["", "namespaces"], ["coordination.k8s.io", "leases"], ["events.k8s.io", "events"], ["discovery.k8s.io", "endpointslices"], ["apiextensions.k8s.io", "customresourcedefinitions"], ["apiregistration.k8s.io", "apiservices"]].exists(x, x[0] in r.apiGroups && x[1] in r.resources))`,fieldPath=".resources",message="attach writes every object in advance, so it cannot select pods, nodes, leases, events, endpoints, endpointslices, namespaces, customresourcedefinitions or apiservices: remove those resources, or remove attach and add the finalizer to objects yourself"
// +kubebuilder:validation:XValidation:rule="self.resources.all(r, !('admissionregistration.k8s.io' in r.apiGroups) && !('gleaner.dev' in r.apiGroups))",fieldPath=".resources",message="objects of the groups admissionregistration.k8s.io and gleaner.dev cannot be selected: remove those groups"
type FinalizerSpec struct {
	// The entry of metadata.finalizers that is handled, as domain/name. For a
	// ClusterFinalizer only: the entry of a Finalizer is always
	// <namespace>.gleaner.dev/<name>.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)+/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$') && self.indexOf('/') <= 253`,message="write domain/name with a domain of your own, such as example.com/bucket"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|gleaner[.]dev)/')`,message="the domains kubernetes.io, k8s.io and gleaner.dev, and their subdomains, are reserved: write a domain of your own, such as example.com/bucket"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="field is immutable, since objects would keep the old finalizer: create another ClusterFinalizer"
	Finalizer string `json:"finalizer,omitempty"`

	// Resources that the finalizer applies to, by name, as in admission rules.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Resources []ResourceRule `json:"resources"`

	// Labels of the namespaces whose objects the finalizer applies to. If not set,
	// it applies to all namespaces and to cluster-scoped objects. For a
	// ClusterFinalizer only.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="write In or NotIn with values, or Exists or DoesNotExist without, as the operator of each expression"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Labels of the objects that the finalizer applies to. If not set, it applies
	// to all objects.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="write In or NotIn with values, or Exists or DoesNotExist without, as the operator of each expression"
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`

	// Conditions that an object must meet, all of them, for the finalizer to apply
	// to it.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	MatchConditions []MatchCondition `json:"matchConditions,omitempty"`

	// The module that is evaluated, with the hook finalize.
	Module ModuleReference `json:"module"`

	// An object of any shape. It is part of every request to the module, and is
	// checked by the module's validate hook.
	//
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Settings *apiextensionsv1.JSON `json:"settings,omitempty"`

	// Monitor evaluates, reads and records, and changes nothing: objects keep the
	// finalizer. Enforce carries out what the module decides. Default Monitor.
	//
	// +optional
	// +kubebuilder:default=Monitor
	Mode Mode `json:"mode,omitempty"`

	// Whether to add the finalizer to the objects that it applies to: to new
	// objects when they are created, and to existing objects. If false, only
	// objects that already have the finalizer are handled.
	//
	// +optional
	Attach bool `json:"attach,omitempty"`

	// Finalizers that must be removed from an object before this one is handled.
	// Those that the object does not have are ignored.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$')`,message="write an entry of metadata.finalizers, such as example.com/backup or foregroundDeletion"
	// +listType=set
	After []string `json:"after,omitempty"`

	// What the module may request. Everything that is not listed is denied.
	//
	// +optional
	Grants *FinalizerGrants `json:"grants,omitempty"`

	// The service account that carries out what grants allow, with its own
	// permissions, and reads the Secrets that they name. For a Finalizer, it also
	// reads the object.
	//
	// +optional
	ServiceAccount *ServiceAccountReference `json:"serviceAccount,omitempty"`

	// How much of the object the module receives: Object is all of it, Metadata its
	// metadata, and Reference its kind, name, UID and owner references. Default
	// Object. For Object and Metadata, the serviceAccount of a Finalizer must be
	// allowed to get the object; otherwise the object is kept.
	//
	// +optional
	Needs Need `json:"needs,omitempty"`

	// Maximum time that an object may wait for this finalizer, from its
	// deletionTimestamp. At most 8760h. If not set, there is no limit.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') && duration(self) >= duration('1s') && duration(self) <= duration('8760h')`,message="write a duration from 1s to 8760h, such as 10m or 48h"
	Deadline *metav1.Duration `json:"deadline,omitempty"`

	// What happens to an object after the deadline. Hold reports it as stalled and
	// keeps retrying; Release removes the finalizer, even if its work is not
	// finished. Default Hold.
	//
	// +optional
	// +kubebuilder:default=Hold
	OnDeadline Removal `json:"onDeadline,omitempty"`

	// What happens to objects when this resource is deleted. Hold keeps the
	// resource, and keeps handling its objects, until no object has the finalizer;
	// Release removes the finalizer from all objects, even if its work is not
	// finished. Default Hold.
	//
	// +optional
	// +kubebuilder:default=Hold
	OnRemoval Removal `json:"onRemoval,omitempty"`

	// Delay before a retry after a failure. It doubles with each failure. If not
	// set, from 1s to 5m.
	//
	// +optional
	Retry *Retry `json:"retry,omitempty"`

	// Whether decision records contain the bodies of HTTP requests and responses,
	// and the data of Secrets. If false, they contain hashes, and cannot be
	// replayed.
	//
	// +optional
	RecordBodies bool `json:"recordBodies,omitempty"`
}

// Retry configures the delay between retries.
//
// +kubebuilder:validation:XValidation:rule=`!self.initial.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') || !self.max.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') || duration(self.initial) <= duration(self.max)`,fieldPath=".max",message="write a duration that is not below initial"
type Retry struct {
	// Delay after the first failure, from 1s to 1h. Default 1s.
	//
	// +optional
	// +kubebuilder:default="1s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') && duration(self) >= duration('1s') && duration(self) <= duration('1h')`,message="write a duration from 1s to 1h, such as 1s"
	Initial *metav1.Duration `json:"initial,omitempty"`

	// Maximum delay, from 1s to 24h. Default 5m.
	//
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')`,message="write a duration from 1s to 24h, such as 5m"
	Max *metav1.Duration `json:"max,omitempty"`
}

// MaxStalledObjects is the maximum number of objects in the status of a finalizer.
const MaxStalledObjects = 20

// FinalizerStatus is the status of Finalizer and ClusterFinalizer.
type FinalizerStatus struct {
	// Conditions of the finalizer: Accepted, ModuleReady, Enforcing and Attached.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The generation of the spec that this status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The reason of the first condition that reports a problem, or of the object
	// that has been stalled the longest. Empty if there is no problem.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// The entry of metadata.finalizers that is handled.
	//
	// +optional
	Finalizer string `json:"finalizer,omitempty"`

	// The SHA-256 digest of the module.
	//
	// +optional
	Digest string `json:"digest,omitempty"`

	// How much of the object the module receives: the least of spec.needs and of what the module
	// reads. For Rego, that is known from its rules.
	//
	// +optional
	Needs Need `json:"needs,omitempty"`

	// The engine of the module: Rego or Wasm.
	//
	// +optional
	Engine Engine `json:"engine,omitempty"`

	// The version of the request and verdict documents that the module uses.
	//
	// +optional
	ABI string `json:"abi,omitempty"`

	// Number of objects that are being deleted and have the finalizer.
	//
	// +optional
	Pending int64 `json:"pending,omitempty"`

	// Number of objects that the finalizer was removed from since Gleaner started.
	//
	// +optional
	Released int64 `json:"released,omitempty"`

	// Number of pending objects that make no progress: the module or an intent has
	// failed, the deadline has passed, or the module cannot be evaluated.
	//
	// +optional
	Stalled int64 `json:"stalled,omitempty"`

	// The objects that have been stalled the longest, at most 20.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	StalledObjects []StalledObject `json:"stalledObjects,omitempty"`
}

// StalledObject is an object that is being deleted and whose finalizer makes no
// progress.
type StalledObject struct {
	// Group and version of the object.
	APIVersion string `json:"apiVersion"`

	// Kind of the object.
	Kind string `json:"kind"`

	// Namespace of the object. Empty if the object is cluster-scoped.
	//
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Name of the object.
	Name string `json:"name"`

	// UID of the object.
	UID string `json:"uid"`

	// Why the object is stalled: Failed, Blocked, NoResponse, DeadlineExceeded,
	// Fault, NotReady, NotSelected, Circular, Error, RateLimited or Monitor.
	Reason string `json:"reason"`

	// A message for people with the details.
	//
	// +optional
	Message string `json:"message,omitempty"`

	// Number of attempts of the module: it increases after a wait and after a failure, as in
	// its requests. It may begin again after a restart of the operator. Not set if the module
	// has not been evaluated.
	//
	// +optional
	Attempts int32 `json:"attempts,omitempty"`

	// The time since which the object has been stalled.
	SinceTime metav1.Time `json:"sinceTime"`

	// The time of the next retry. A time in the past means that the retry is due.
	//
	// +optional
	NextRetryTime *metav1.Time `json:"nextRetryTime,omitempty"`

	// The time at which the deadline ends or ended.
	//
	// +optional
	DeadlineTime *metav1.Time `json:"deadlineTime,omitempty"`
}
