package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Removal is what becomes of a finalizer that nobody has finished.
//
// +kubebuilder:validation:Enum=Hold;Release
type Removal string

// What can become of a finalizer.
const (
	RemovalHold    Removal = "Hold"    // it stays on its objects, which stay with it
	RemovalRelease Removal = "Release" // it is taken off, whatever was left to be done
)

// FinalizerSpec is what Finalizer and ClusterFinalizer have in common.
//
// +kubebuilder:validation:XValidation:rule="!has(self.grants) || has(self.serviceAccount)",fieldPath=".serviceAccount",reason=FieldValueRequired,message="what grants allow is done as a service account, which also reads their secrets: write serviceAccount, or leave grants out"
// +kubebuilder:validation:XValidation:rule="self.resources.all(r, !('*' in r.apiGroups) && !('*' in r.resources))",fieldPath=".resources",message="a finalizer is for resources that somebody has named: write groups and resources in place of *"
// +kubebuilder:validation:XValidation:rule=`!has(self.attach) || !self.attach || self.resources.all(r, ![["", "pods"], ["", "nodes"], ["", "events"], ["", "endpoints"], ["", "namespaces"], ["coordination.k8s.io", "leases"], ["events.k8s.io", "events"], ["discovery.k8s.io", "endpointslices"], ["apiextensions.k8s.io", "customresourcedefinitions"], ["apiregistration.k8s.io", "apiservices"]].exists(x, x[0] in r.apiGroups && x[1] in r.resources))`,fieldPath=".resources",message="attach writes every object ahead of time, and so is not for pods, nodes, leases, events, endpoints, endpointslices, namespaces, customresourcedefinitions or apiservices: leave those resources out, or leave attach out and put the finalizer where it is wanted"
// +kubebuilder:validation:XValidation:rule="self.resources.all(r, !('admissionregistration.k8s.io' in r.apiGroups) && !('gleaner.dev' in r.apiGroups))",fieldPath=".resources",message="objects of the groups admissionregistration.k8s.io and gleaner.dev have no finalizers of this kind: leave those groups out"
type FinalizerSpec struct {
	// The entry of metadata.finalizers that is served, as domain/name. For a
	// ClusterFinalizer only: that of a Finalizer is always its namespace, then
	// .gleaner.dev/, then its name.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)+/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$') && self.indexOf('/') <= 253`,message="write domain/name with a domain of your own, such as example.com/bucket"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|gleaner[.]dev)/')`,message="the domains kubernetes.io, k8s.io and gleaner.dev, and what is under them, belong to others: write a domain of your own, such as example.com/bucket"
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="the objects that have the old one would be left with it: leave finalizer as it was, and write another ClusterFinalizer beside this one"
	Finalizer string `json:"finalizer,omitempty"`

	// The resources whose objects it is for, as in admission rules, by name.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Resources []ResourceRule `json:"resources"`

	// The labels of the namespaces whose objects it is for; without it, those of all
	// namespaces, and objects outside of namespaces. For a ClusterFinalizer only.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="write In or NotIn with values, or Exists or DoesNotExist without, as the operator of each expression"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// The labels of the objects that it is for; without it, all.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="write In or NotIn with values, or Exists or DoesNotExist without, as the operator of each expression"
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`

	// Conditions that an object must meet, all of them, for it to be for it.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	MatchConditions []MatchCondition `json:"matchConditions,omitempty"`

	// The module that is asked, by its hook finalize.
	Module ModuleReference `json:"module"`

	// An object of any shape, handed to the module with every request, and checked
	// by its validate hook.
	//
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Settings *apiextensionsv1.JSON `json:"settings,omitempty"`

	// Monitor asks, reads and records, and changes nothing: objects that have the
	// finalizer keep it. Enforce does as the module decides.
	//
	// +optional
	// +kubebuilder:default=Monitor
	Mode Mode `json:"mode,omitempty"`

	// Puts the finalizer on the objects that it is for: in the write that creates
	// them, and on those that are there already. Without it, only objects are served
	// on which somebody has put it.
	//
	// +optional
	Attach bool `json:"attach,omitempty"`

	// Finalizers that must be gone from an object before this one is served; those
	// that the object does not have are not waited for.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=317
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?$')`,message="write a finalizer as it stands in metadata.finalizers, such as example.com/backup or foregroundDeletion"
	// +listType=set
	After []string `json:"after,omitempty"`

	// What the module may ask for. Nothing is allowed that is not listed.
	//
	// +optional
	Grants *FinalizerGrants `json:"grants,omitempty"`

	// The account that does what grants allow, with its own rights, and reads the
	// secrets that they name. That of a Finalizer also reads the object.
	//
	// +optional
	ServiceAccount *ServiceAccountReference `json:"serviceAccount,omitempty"`

	// How much of the object the module is shown: Object is all of it, Metadata its
	// metadata, and Reference its kind, name, UID and owners; without it, Object. For
	// the first two the serviceAccount of a Finalizer must be allowed to get the
	// object: if it is not, the object is kept.
	//
	// +optional
	Needs Need `json:"needs,omitempty"`

	// How long an object may wait for this finalizer, from its deletionTimestamp;
	// without it, for ever. At most 8760h.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') && duration(self) >= duration('1s') && duration(self) <= duration('8760h')`,message="write a duration from 1s to 8760h, such as 10m or 48h"
	Deadline *metav1.Duration `json:"deadline,omitempty"`

	// What becomes of an object after the deadline: Hold reports it as stuck and
	// keeps trying, Release takes the finalizer off, whatever was left to be done.
	//
	// +optional
	// +kubebuilder:default=Hold
	OnDeadline Removal `json:"onDeadline,omitempty"`

	// What becomes of objects when this resource is deleted: Hold keeps it, and goes
	// on serving, until no object has the finalizer; Release takes the finalizer off
	// all of them, whatever was left to be done.
	//
	// +optional
	// +kubebuilder:default=Hold
	OnRemoval Removal `json:"onRemoval,omitempty"`

	// How long to wait after a failure, each time twice as long; without it, from 1s
	// to 5m.
	//
	// +optional
	Retry *Retry `json:"retry,omitempty"`

	// Keeps in records what HTTP requests and responses, and Secrets, hold; without
	// it they hold its hash, and can't be replayed.
	//
	// +optional
	RecordBodies bool `json:"recordBodies,omitempty"`
}

// Retry is how long to wait after failures.
//
// +kubebuilder:validation:XValidation:rule=`!self.initial.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') || !self.max.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') || duration(self.initial) <= duration(self.max)`,fieldPath=".max",message="write at least what initial is"
type Retry struct {
	// After the first failure, from 1s to 1h.
	//
	// +optional
	// +kubebuilder:default="1s"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') && duration(self) >= duration('1s') && duration(self) <= duration('1h')`,message="write a duration from 1s to 1h, such as 1s"
	Initial *metav1.Duration `json:"initial,omitempty"`

	// At most, from 1s to 24h.
	//
	// +optional
	// +kubebuilder:default="5m"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') && duration(self) >= duration('1s') && duration(self) <= duration('24h')`,message="write a duration from 1s to 24h, such as 5m"
	Max *metav1.Duration `json:"max,omitempty"`
}

// MaxStuck bounds the objects that the status of a finalizer lists.
const MaxStuck = 20

// FinalizerStatus is what Finalizer and ClusterFinalizer have in common.
type FinalizerStatus struct {
	// Accepted, ModuleReady, Enforcing and Attached.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The generation of the finalizer that this status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// What is wrong, in one word: the reason of the first condition that says so, or of the
	// object that has been stuck for the longest time.
	// Empty if nothing is.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// The entry of metadata.finalizers that is served.
	//
	// +optional
	Finalizer string `json:"finalizer,omitempty"`

	// The SHA-256 digest of the module.
	//
	// +optional
	Digest string `json:"digest,omitempty"`

	// What the module runs on: Rego or Wasm.
	//
	// +optional
	Engine Engine `json:"engine,omitempty"`

	// The version of the documents that the module is asked with.
	//
	// +optional
	ABI string `json:"abi,omitempty"`

	// How many objects are being deleted and have the finalizer.
	//
	// +optional
	Pending int64 `json:"pending,omitempty"`

	// How many objects the finalizer was taken off since Gleaner started.
	//
	// +optional
	Released int64 `json:"released,omitempty"`

	// How many of the pending objects get no further: the module has failed, or
	// what it asked for has, or the deadline is over, or nobody can ask.
	//
	// +optional
	StuckCount int64 `json:"stuckCount,omitempty"`

	// Those of them that have been so for the longest time, at most 20.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	Stuck []StuckObject `json:"stuck,omitempty"`
}

// StuckObject is an object that a finalizer keeps, and gets no further with.
type StuckObject struct {
	// Its group and version.
	APIVersion string `json:"apiVersion"`

	// Its kind.
	Kind string `json:"kind"`

	// Its namespace, if it is in one.
	//
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// Its name.
	Name string `json:"name"`

	// Its uid.
	UID string `json:"uid"`

	// Why, in one word: Failed, Blocked, NoAnswer, DeadlineExceeded, Fault, NotReady,
	// NotSelected, Circular, Unreachable, RateLimited or Monitor.
	Reason string `json:"reason"`

	// Why, for people.
	//
	// +optional
	Message string `json:"message,omitempty"`

	// Since when it has been so.
	Since metav1.Time `json:"since"`

	// When it is tried again of itself. A time in the past: it is due.
	//
	// +optional
	NextRetry *metav1.Time `json:"nextRetry,omitempty"`

	// When its deadline is, or was.
	//
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`
}
