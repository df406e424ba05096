package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RetentionGrouping says which objects the limits keepLast and maxTotal apply to together.
//
// +kubebuilder:validation:Enum=Owner;Namespace;Label;Expression
type RetentionGrouping string

// The groupings.
const (
	GroupByOwner      RetentionGrouping = "Owner"
	GroupByNamespace  RetentionGrouping = "Namespace"
	GroupByLabel      RetentionGrouping = "Label"
	GroupByExpression RetentionGrouping = "Expression"
)

// RetentionOrder says which objects are removed first.
//
// +kubebuilder:validation:Enum=Creation;Finish
type RetentionOrder string

// The orders.
const (
	OrderByCreation RetentionOrder = "Creation"
	OrderByFinish   RetentionOrder = "Finish"
)

// GroupBy groups objects.
//
// +kubebuilder:validation:XValidation:rule="has(self.label) == (self.type == 'Label')",fieldPath=".label",message="label is for the type Label, which needs it: write type: Label with label: KEY, or remove label"
// +kubebuilder:validation:XValidation:rule="has(self.expression) == (self.type == 'Expression')",fieldPath=".expression",message="expression is for the type Expression, which needs it: write type: Expression with expression: …, or remove expression"
type GroupBy struct {
	// What the objects of a group have in common. Owner: the controller, or the only
	// owner. Namespace: the namespace. Label: the namespace and the value of a label.
	// Expression: the value of a CEL expression. An object without a group is kept.
	Type RetentionGrouping `json:"type"`

	// Key of the label.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Label string `json:"label,omitempty"`

	// A CEL expression with one variable, object, that returns a string.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=8192
	Expression string `json:"expression,omitempty"`
}

// RetentionPolicySpec is the spec of RetentionPolicy and ClusterRetentionPolicy.
//
// +kubebuilder:validation:XValidation:rule="has(self.keepLast) || has(self.maxTotal) || has(self.maxAge) || has(self.ttlAfterFinished) || has(self.unreferencedFor)",message="without a limit, nothing is removed: write at least one of keepLast, maxTotal, maxAge, ttlAfterFinished and unreferencedFor"
// +kubebuilder:validation:XValidation:rule="!has(self.groupBy) || has(self.keepLast) || has(self.maxTotal)",fieldPath=".groupBy",reason=FieldValueForbidden,message="groupBy is for keepLast and maxTotal: write one of them, or remove groupBy"
// +kubebuilder:validation:XValidation:rule="self.resources.all(r, !('*' in r.apiGroups) && !('*' in r.resources))",fieldPath=".resources",message="retention reads all objects that it selects, so it cannot select *: list groups and resources by name"
// +kubebuilder:validation:XValidation:rule="self.resources.all(r, !('gleaner.dev' in r.apiGroups))",fieldPath=".resources",message="retention never removes the objects of the group gleaner.dev: remove that group"
// +kubebuilder:validation:XValidation:rule="self.resources.map(r, r.apiGroups.size() * r.resources.size()).sum() <= 20",fieldPath=".resources",message="select at most 20 resources, counting each group with each resource, or create several policies"
// +kubebuilder:validation:XValidation:rule="!has(self.unreferencedFor) || self.resources.all(r, r.apiGroups.all(g, g.size() == 0) && r.resources.all(x, x in ['configmaps', 'secrets', 'persistentvolumeclaims', 'serviceaccounts']))",fieldPath=".unreferencedFor",message="unreferencedFor is for configmaps, secrets, persistentvolumeclaims and serviceaccounts of the core group: select only those, or remove unreferencedFor"
type RetentionPolicySpec struct {
	// Monitor: the status shows what would be removed, and nothing is. Enforce:
	// objects are removed. Default Monitor.
	//
	// +optional
	// +kubebuilder:default=Monitor
	Mode Mode `json:"mode,omitempty"`

	// Resources to select, as in admission rules.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	Resources []RetentionRule `json:"resources"`

	// Labels of the namespaces to select objects in. If not set, objects in all
	// namespaces and cluster-scoped objects are selected. For a
	// ClusterRetentionPolicy only.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="write In or NotIn with values, or Exists or DoesNotExist without, as the operator of each expression"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Labels of the objects to select. If not set, all objects are selected.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="write In or NotIn with values, or Exists or DoesNotExist without, as the operator of each expression"
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`

	// Conditions that an object must meet, all of them, to be selected. An object for
	// which one of them fails is kept. For a ClusterRetentionPolicy only.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	MatchConditions []MatchCondition `json:"matchConditions,omitempty"`

	// Groups that keepLast applies to, and that maxTotal keeps an equal share of.
	// If not set, all selected objects are one group.
	//
	// +optional
	GroupBy *GroupBy `json:"groupBy,omitempty"`

	// Number of objects of each group that are kept, the newest. If not set, there is
	// no limit.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	KeepLast *int32 `json:"keepLast,omitempty"`

	// Maximum number of objects: an equal share of each group is kept, at least one,
	// and the oldest of all are removed beyond that. If not set, there is no limit.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000000
	MaxTotal *int32 `json:"maxTotal,omitempty"`

	// How old an object must be, from its creation, before any limit removes it, from
	// 0s to 87600h. Default 0s.
	//
	// +optional
	MinAge *RetentionDuration `json:"minAge,omitempty"`

	// How old an object can become, from its creation, from 1s to 87600h. If not set,
	// there is no limit.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') || duration(self) >= duration('1s')`,message="write a duration from 1s to 87600h, such as 720h"
	MaxAge *RetentionDuration `json:"maxAge,omitempty"`

	// How long an object is kept after it finished, from 0s to 87600h: Jobs and Pods,
	// Workflows of Argo, runs of Tekton, Backups and Restores of Velero, and objects
	// for which finishedAt returns a time. If not set, there is no limit.
	//
	// +optional
	TTLAfterFinished *RetentionDuration `json:"ttlAfterFinished,omitempty"`

	// A CEL expression with one variable, object, that returns the time at which the
	// object finished, or null if it has not. For kinds that Gleaner does not know,
	// and for a ClusterRetentionPolicy only.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=8192
	FinishedAt string `json:"finishedAt,omitempty"`

	// How long nothing must have referred to an object, from 1m to 87600h, for it to
	// be removed. For ConfigMaps, Secrets, PersistentVolumeClaims and ServiceAccounts.
	// The time starts when Gleaner starts: it does not know of earlier references. If
	// not set, there is no limit.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') || duration(self) >= duration('1m')`,message="write a duration from 1m to 87600h, such as 168h"
	UnreferencedFor *RetentionDuration `json:"unreferencedFor,omitempty"`

	// Where custom resources refer to ConfigMaps, Secrets, PersistentVolumeClaims and
	// ServiceAccounts. What they refer to is used, for all policies. For a
	// ClusterRetentionPolicy only.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	References []RetentionReference `json:"references,omitempty"`

	// Which objects are the oldest, and so removed first: by Creation, or by Finish.
	// With Finish, only objects that have finished are selected. Default Creation.
	//
	// +optional
	// +kubebuilder:default=Creation
	Order RetentionOrder `json:"order,omitempty"`

	// What happens to the dependents of an object that is removed: Background,
	// Foreground or Orphan, as in kubectl delete --cascade. Default Background.
	//
	// +optional
	// +kubebuilder:default=Background
	// +kubebuilder:validation:Enum=Background;Foreground;Orphan
	PropagationPolicy metav1.DeletionPropagation `json:"propagationPolicy,omitempty"`

	// Whether objects that have a controller, such as the ReplicaSets of a Deployment,
	// can be removed: their controllers may create them again. Default false.
	//
	// +optional
	IncludeControlled bool `json:"includeControlled,omitempty"`
}

// RetentionReference says where the objects of a resource refer to others.
type RetentionReference struct {
	// API group of the objects that refer to others, without its version.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')`,message="write a group such as example.com, without its version"
	APIGroup string `json:"apiGroup"`

	// Resource name of the objects that refer to others, plural and in lower case, such
	// as databases.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')`,message="write the plural in lower case and without a subresource, such as databases"
	Resource string `json:"resource"`

	// The kind that is referred to.
	//
	// +kubebuilder:validation:Enum=ConfigMap;Secret;PersistentVolumeClaim;ServiceAccount
	Kind string `json:"kind"`

	// A CEL expression with one variable, object, that returns the name of what the
	// object refers to, or a list of names: each as name, in the same namespace, or as
	// namespace/name. An empty name, an empty list and null refer to nothing. While it
	// fails for an object, everything counts as used.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=8192
	Expression string `json:"expression"`
}

// RetentionRule selects resources by name.
type RetentionRule struct {
	// API groups, without versions; "" is the core group.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?|[*]|)$')`,message="write a group such as apps, without its version, or \"\" for the core group"
	// +listType=atomic
	APIGroups []string `json:"apiGroups"`

	// Resource names, plural and in lower case, such as jobs.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=20
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?|[*])$')`,message="write the plural in lower case and without a subresource, such as jobs"
	// +listType=atomic
	Resources []string `json:"resources"`
}

// RetentionDuration is a duration of at most ten years.
//
// +kubebuilder:validation:MaxLength=32
// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') && duration(self) <= duration('87600h')`,message="write a duration of at most 87600h, such as 30m, 24h, or 168h for a week"
type RetentionDuration string

// MaxNextRemovals is the maximum number of objects in status.nextRemovals.
const MaxNextRemovals = 10

// RetentionPolicyStatus is the status of RetentionPolicy and ClusterRetentionPolicy.
type RetentionPolicyStatus struct {
	// Conditions of the policy: Accepted and Enforcing.
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

	// Number of objects that the policy selects. Empty until all are listed.
	//
	// +optional
	Selected *int64 `json:"selected,omitempty"`

	// Number of objects that the limits of the policy remove now. In mode Monitor,
	// they stay.
	//
	// +optional
	Due *int64 `json:"due,omitempty"`

	// Number of objects removed for this policy since Gleaner started.
	//
	// +optional
	Removed *int64 `json:"removed,omitempty"`

	// Number of objects that are kept whatever the limits are, by reason: InUse,
	// Protected, Pinned, UseUnknown, AgeUnknown, Terminating, and Policy for those that
	// a GCPolicy or ClusterGCPolicy with the hook retain keeps.
	//
	// +optional
	Kept map[string]int64 `json:"kept,omitempty"`

	// The objects that are removed next, at most 10: those that are due, then those
	// that will be if nothing changes.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=10
	// +listType=atomic
	NextRemovals []NextRemoval `json:"nextRemovals,omitempty"`

	// The last failure to remove an object.
	//
	// +optional
	LastFailure *Failure `json:"lastFailure,omitempty"`
}

// NextRemoval is an object that a retention policy removes next.
type NextRemoval struct {
	// The API version of the object.
	APIVersion string `json:"apiVersion"`

	// The kind of the object.
	Kind string `json:"kind"`

	// The namespace of the object. Empty for a cluster-scoped object.
	//
	// +optional
	Namespace string `json:"namespace,omitempty"`

	// The name of the object.
	Name string `json:"name"`

	// The limit that removes the object: KeepLast, MaxTotal, MaxAge, Expired or
	// MaxUnused. Empty if it is not due yet.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// When the object is removed if nothing changes before. Empty if it is due now.
	//
	// +optional
	Time *metav1.Time `json:"time,omitempty"`
}
