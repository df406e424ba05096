package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Need says how much of an object a module receives.
//
// +kubebuilder:validation:Enum=Object;Metadata;Reference
type Need string

// The parts of an object that a module can receive.
const (
	NeedObject    Need = "Object"
	NeedMetadata  Need = "Metadata"
	NeedReference Need = "Reference"
)

// Mode says whether decisions are carried out.
//
// +kubebuilder:validation:Enum=Monitor;Enforce
type Mode string

// The modes.
const (
	ModeMonitor Mode = "Monitor"
	ModeEnforce Mode = "Enforce"
)

// OnFault says what happens to an object if the evaluation of its policy fails.
//
// +kubebuilder:validation:Enum=Hold;Default
type OnFault string

// The fault policies.
const (
	OnFaultHold    OnFault = "Hold"
	OnFaultDefault OnFault = "Default"
)

// ExplicitPropagation says which prevails: the policy, or the propagation policy Orphan or
// Foreground of a client's delete request.
//
// +kubebuilder:validation:Enum=Respect;Override
type ExplicitPropagation string

// How a client's propagation policy is treated.
const (
	ExplicitPropagationRespect  ExplicitPropagation = "Respect"
	ExplicitPropagationOverride ExplicitPropagation = "Override"
)

// PolicyHook is a hook of a policy.
//
// +kubebuilder:validation:Enum=collect;propagate;protect;retain
type PolicyHook string

// GCPolicySpec is the spec of GCPolicy and ClusterGCPolicy.
//
// +kubebuilder:validation:XValidation:rule="has(self.fixed) != has(self.module)",message="write exactly one of fixed (the same verdict for all objects) and module (a program that decides)"
// +kubebuilder:validation:XValidation:rule="!has(self.settings) || has(self.module)",fieldPath=".settings",reason=FieldValueForbidden,message="settings need a module: remove settings, or write module instead of fixed"
// +kubebuilder:validation:XValidation:rule="!has(self.hooks) || has(self.module)",fieldPath=".hooks",reason=FieldValueForbidden,message="hooks need a module: remove hooks, or write module instead of fixed"
// +kubebuilder:validation:XValidation:rule="!has(self.grants) || has(self.module)",fieldPath=".grants",reason=FieldValueForbidden,message="grants need a module: remove grants, or write module instead of fixed"
// +kubebuilder:validation:XValidation:rule="!has(self.grants) || has(self.serviceAccount)",fieldPath=".serviceAccount",reason=FieldValueRequired,message="grants need a service account: set serviceAccount, or remove grants"
// +kubebuilder:validation:XValidation:rule="!has(self.fixed) || !has(self.fixed.propagate) || self.resources.all(r, !('*' in r.apiGroups) && !('*' in r.resources))",fieldPath=".resources",message="propagate writes every object in advance, so it cannot govern *: list groups and resources by name, or remove propagate"
// +kubebuilder:validation:XValidation:rule=`!has(self.fixed) || !has(self.fixed.propagate) || self.resources.all(r, ![["", "pods"], ["", "nodes"], ["", "events"], ["", "endpoints"], ["", "namespaces"], ["coordination.k8s.io", "leases"], ["events.k8s.io", "events"], ["discovery.k8s.io", "endpointslices"], ["apiextensions.k8s.io", "customresourcedefinitions"], ["apiregistration.k8s.io", "apiservices"]].exists(x, x[0] in r.apiGroups && x[1] in r.resources))`,fieldPath=".resources",message="propagate writes every object in advance, so it cannot govern pods, nodes, leases, events, endpoints, endpointslices, namespaces, customresourcedefinitions or apiservices: remove those resources, or remove propagate"
// +kubebuilder:validation:XValidation:rule="!has(self.fixed) || !has(self.fixed.propagate) || self.resources.all(r, !('admissionregistration.k8s.io' in r.apiGroups) && !('gleaner.dev' in r.apiGroups))",fieldPath=".resources",message="propagate writes every object in advance, so it cannot govern the groups admissionregistration.k8s.io and gleaner.dev: remove those groups, or remove propagate"
// +kubebuilder:validation:XValidation:rule="!has(self.fixed) || !has(self.fixed.protect) || self.resources.all(r, !('gleaner.dev' in r.apiGroups))",fieldPath=".resources",message="protect cannot govern the group gleaner.dev, because its objects must remain deletable: remove that group, or remove protect"
type GCPolicySpec struct {
	// Resources that the policy governs, as in admission rules. The hook propagate
	// never governs objects in kube-system.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Resources []ResourceRule `json:"resources"`

	// Labels of the namespaces whose objects are governed. If not set, objects in
	// all namespaces and cluster-scoped objects are governed. For a ClusterGCPolicy
	// only.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="write In or NotIn with values, or Exists or DoesNotExist without, as the operator of each expression"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Labels of the objects that are governed. If not set, all objects are
	// governed.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="write In or NotIn with values, or Exists or DoesNotExist without, as the operator of each expression"
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`

	// Conditions that an object must meet, all of them, to be governed.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	MatchConditions []MatchCondition `json:"matchConditions,omitempty"`

	// Verdicts that are the same for every object. Mutually exclusive with module.
	//
	// +optional
	Fixed *FixedVerdicts `json:"fixed,omitempty"`

	// The module that decides. Mutually exclusive with fixed.
	//
	// +optional
	Module *ModuleReference `json:"module,omitempty"`

	// Hooks of the module that are used. Default: all hooks that the module
	// implements. Without propagate, no object gets a hold. Protect is for a
	// ClusterGCPolicy only.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=4
	// +listType=set
	Hooks []PolicyHook `json:"hooks,omitempty"`

	// How much of the object the module receives: Object is all of it, Metadata its
	// metadata, and Reference its kind, name, UID and owner references. Default
	// Object. Object and Metadata cost one API request for each decision; in a
	// GCPolicy the serviceAccount must be allowed to get the object, otherwise the
	// object is kept.
	//
	// +optional
	// +kubebuilder:default=Object
	Needs Need `json:"needs,omitempty"`

	// An object of any shape. It is part of every request to the module, and is
	// checked by the module's validate hook.
	//
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Settings *apiextensionsv1.JSON `json:"settings,omitempty"`

	// Monitor evaluates and records, and changes nothing; Enforce carries out the
	// decisions. Default Monitor.
	//
	// +optional
	// +kubebuilder:default=Monitor
	Mode Mode `json:"mode,omitempty"`

	// What happens to an object if the module fails, times out or returns an
	// invalid verdict. Hold keeps the object and retries; Default continues with
	// the next policy, and finally with the default behavior of Kubernetes. Default
	// Hold.
	//
	// +optional
	// +kubebuilder:default=Hold
	OnFault OnFault `json:"onFault,omitempty"`

	// Whether a client's propagation policy prevails if it is Orphan or Foreground.
	// Respect follows the client; Override evaluates this policy instead. Default
	// Respect.
	//
	// +optional
	// +kubebuilder:default=Respect
	ExplicitPropagation ExplicitPropagation `json:"explicitPropagation,omitempty"`

	// Policies with a higher priority are evaluated first. The priority is compared
	// with that of policies of the same scope. Default 0.
	//
	// +optional
	// +kubebuilder:default=0
	Priority int32 `json:"priority,omitempty"`

	// Whether policies in an object's namespace are evaluated before this one. If
	// false, this one is evaluated first. For a ClusterGCPolicy only.
	//
	// +optional
	Overridable bool `json:"overridable,omitempty"`

	// What the module may request. Everything that is not listed is denied.
	//
	// +optional
	Grants *Grants `json:"grants,omitempty"`

	// The service account that reads objects for the module. What it may not read
	// is withheld from the module.
	//
	// +optional
	ServiceAccount *ServiceAccountReference `json:"serviceAccount,omitempty"`
}

// ResourceRule selects each of its resources in each of its groups.
//
// +kubebuilder:validation:XValidation:rule="!('*' in self.apiGroups) || self.apiGroups.size() == 1",fieldPath=".apiGroups",message="* is all groups: write it alone"
// +kubebuilder:validation:XValidation:rule="!('*' in self.resources) || self.resources.size() == 1",fieldPath=".resources",message="* is all resources: write it alone"
type ResourceRule struct {
	// API groups, without versions; "" is the core group, * is all.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?|[*]|)$')`,message="write a group such as apps, without its version, \"\" for the core group, or * for all"
	// +listType=atomic
	APIGroups []string `json:"apiGroups"`

	// Resource names, plural and in lower case, such as persistentvolumeclaims; *
	// is all.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?|[*])$')`,message="write the plural in lower case and without a subresource, such as deployments, or * for all"
	// +listType=atomic
	Resources []string `json:"resources"`
}

// MatchCondition is a condition in CEL.
type MatchCondition struct {
	// Name of the condition, for messages.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// A CEL expression with one variable, object. The object is governed if the
	// expression is true, and not governed if it is false or null; an error is a
	// fault.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=8192
	Expression string `json:"expression"`
}

// ModuleReference refers to a module.
type ModuleReference struct {
	// PolicyModule or ClusterPolicyModule. Default: the kind with the same scope. A
	// ClusterGCPolicy or ClusterFinalizer can only refer to a ClusterPolicyModule.
	//
	// +optional
	// +kubebuilder:validation:Enum=PolicyModule;ClusterPolicyModule
	Kind string `json:"kind,omitempty"`

	// Name of the module.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// The SHA-256 digest of the module's content, as in its status.digest. A module
	// with other content is not evaluated. Required with mode: Enforce and with
	// grants. To print it, run: gleaner module digest.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[0-9a-f]{64}$')`,message="write 64 hexadecimal digits in lower case, as gleaner module digest prints them, without a prefix"
	Digest string `json:"digest,omitempty"`
}

// Grants are what a policy's module may request.
type Grants struct {
	// Objects that the module may get and list.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Read []ReadGrant `json:"read,omitempty"`
}

// ReadGrant allows reading objects of each of its groups and each of its resources,
// in each of its namespaces.
//
// +kubebuilder:validation:XValidation:rule="!('*' in self.apiGroups) || self.apiGroups.size() == 1",fieldPath=".apiGroups",message="* is all groups: write it alone"
// +kubebuilder:validation:XValidation:rule="!('*' in self.resources) || self.resources.size() == 1",fieldPath=".resources",message="* is all resources: write it alone"
// +kubebuilder:validation:XValidation:rule="!has(self.namespaces) || !('*' in self.namespaces) || self.namespaces.size() == 1",fieldPath=".namespaces",message="* is all namespaces: write it alone"
type ReadGrant struct {
	// API groups, without versions; "" is the core group, * is all.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?|[*]|)$')`,message="write a group such as apps, without its version, \"\" for the core group, or * for all"
	// +listType=atomic
	APIGroups []string `json:"apiGroups"`

	// Resource names, plural and in lower case, such as persistentvolumeclaims; *
	// is all.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?|[*])$')`,message="write the plural in lower case and without a subresource, such as deployments, or * for all"
	// +listType=atomic
	Resources []string `json:"resources"`

	// Namespaces of the objects; * is all. If not set, only cluster-scoped objects
	// can be read. For a ClusterGCPolicy or ClusterFinalizer only: the module of a
	// GCPolicy or Finalizer reads in the namespace of that resource.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^([a-z0-9]([a-z0-9-]*[a-z0-9])?|[*])$')`,message="write the name of a namespace, or * for all"
	// +listType=atomic
	Namespaces []string `json:"namespaces,omitempty"`
}

// ServiceAccountReference refers to a service account.
type ServiceAccountReference struct {
	// Namespace of the service account. Required in a ClusterGCPolicy or
	// ClusterFinalizer; in a GCPolicy or Finalizer, it is always the namespace of
	// that resource.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// Name of the service account.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}
