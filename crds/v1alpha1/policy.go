package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Need is how much of an object a module is shown.
//
// +kubebuilder:validation:Enum=Object;Metadata;Reference
type Need string

// What a module may be shown.
const (
	NeedObject    Need = "Object"
	NeedMetadata  Need = "Metadata"
	NeedReference Need = "Reference"
)

// Mode is whether a policy's decisions are carried out.
//
// +kubebuilder:validation:Enum=Monitor;Enforce
type Mode string

// The modes of a policy.
const (
	ModeMonitor Mode = "Monitor"
	ModeEnforce Mode = "Enforce"
)

// OnFault is what becomes of an object whose policy did not answer as it must.
//
// +kubebuilder:validation:Enum=Hold;Default
type OnFault string

// What can become of an object after a fault.
const (
	OnFaultHold    OnFault = "Hold"
	OnFaultDefault OnFault = "Default"
)

// Explicit is who prevails: the policy, or a client that asked for a
// propagation policy other than Background.
//
// +kubebuilder:validation:Enum=Respect;Override
type Explicit string

// Whether a client's wish is respected.
const (
	ExplicitRespect  Explicit = "Respect"
	ExplicitOverride Explicit = "Override"
)

// PolicyHook is a question that a policy can be asked.
//
// +kubebuilder:validation:Enum=collect;propagate
type PolicyHook string

// GCPolicySpec is what GCPolicy and ClusterGCPolicy have in common.
//
// +kubebuilder:validation:XValidation:rule="has(self.fixed) != has(self.module)",message="write exactly one of fixed (one verdict for all objects) and module (a program that decides)"
// +kubebuilder:validation:XValidation:rule="!has(self.settings) || has(self.module)",fieldPath=".settings",reason=FieldValueForbidden,message="settings are for a module, and there is none: leave them out, or write module in place of fixed"
// +kubebuilder:validation:XValidation:rule="!has(self.hooks) || has(self.module)",fieldPath=".hooks",reason=FieldValueForbidden,message="fixed verdicts answer what they are written for: leave hooks out, or write module in place of fixed"
// +kubebuilder:validation:XValidation:rule="!has(self.grants) || has(self.module)",fieldPath=".grants",reason=FieldValueForbidden,message="fixed verdicts read nothing: leave grants out, or write module in place of fixed"
// +kubebuilder:validation:XValidation:rule="!has(self.grants) || has(self.serviceAccount)",fieldPath=".serviceAccount",reason=FieldValueRequired,message="what grants allow is read as a service account: write serviceAccount, or leave grants out"
// +kubebuilder:validation:XValidation:rule="!has(self.fixed) || !has(self.fixed.propagate) || self.resources.all(r, !('*' in r.apiGroups) && !('*' in r.resources))",fieldPath=".resources",message="propagate needs every object to be written ahead of time, so it can't govern *: write groups and resources by name, or leave propagate out"
// +kubebuilder:validation:XValidation:rule=`!has(self.fixed) || !has(self.fixed.propagate) || self.resources.all(r, ![["", "pods"], ["", "nodes"], ["", "events"], ["", "endpoints"], ["", "namespaces"], ["coordination.k8s.io", "leases"], ["events.k8s.io", "events"], ["discovery.k8s.io", "endpointslices"], ["apiextensions.k8s.io", "customresourcedefinitions"], ["apiregistration.k8s.io", "apiservices"]].exists(x, x[0] in r.apiGroups && x[1] in r.resources))`,fieldPath=".resources",message="propagate can't govern pods, nodes, leases, events, endpoints, endpointslices, namespaces, customresourcedefinitions or apiservices, since it needs every object to be written ahead of time: leave those resources out, or leave propagate out"
// +kubebuilder:validation:XValidation:rule="!has(self.fixed) || !has(self.fixed.propagate) || self.resources.all(r, !('admissionregistration.k8s.io' in r.apiGroups) && !('gleaner.dev' in r.apiGroups))",fieldPath=".resources",message="propagate can't govern the groups admissionregistration.k8s.io and gleaner.dev, since it needs every object to be written ahead of time: leave those groups out, or leave propagate out"
type GCPolicySpec struct {
	// The resources that are governed, as in admission rules. Objects in
	// kube-system are never governed by propagate.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Resources []ResourceRule `json:"resources"`

	// The labels of the namespaces whose objects are governed; without it, those
	// of all namespaces, and objects outside of namespaces. For a ClusterGCPolicy
	// only.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="write In or NotIn with values, or Exists or DoesNotExist without, as the operator of each expression"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// The labels of the objects that are governed; without it, all.
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

	// Verdicts that are the same for every object. Either this or module.
	//
	// +optional
	Fixed *FixedVerdicts `json:"fixed,omitempty"`

	// The module that decides. Either this or fixed.
	//
	// +optional
	Module *ModuleReference `json:"module,omitempty"`

	// What the module is asked, of what it answers; without it, all of that. Without
	// propagate no object gets a hold.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=2
	// +listType=set
	Hooks []PolicyHook `json:"hooks,omitempty"`

	// How much of the object the module is shown: Object is all of it, Metadata its
	// metadata, and Reference its kind, name, UID and owners. The first two cost one
	// call of the API server for each decision, and in a GCPolicy the serviceAccount
	// must be allowed to get the object: if it is not, the object is kept.
	//
	// +optional
	// +kubebuilder:default=Object
	Needs Need `json:"needs,omitempty"`

	// An object of any shape, handed to the module with every request, and checked
	// by its validate hook.
	//
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Settings *apiextensionsv1.JSON `json:"settings,omitempty"`

	// Monitor decides and records, and changes nothing; Enforce does as it decided.
	//
	// +optional
	// +kubebuilder:default=Monitor
	Mode Mode `json:"mode,omitempty"`

	// What becomes of an object when the module fails, is slow or answers nonsense:
	// Hold keeps the object and tries again, Default goes on to the next policy, and
	// at the end to what Kubernetes does.
	//
	// +optional
	// +kubebuilder:default=Hold
	OnFault OnFault `json:"onFault,omitempty"`

	// Respect does as a client says that asked for Orphan or Foreground; Override
	// asks the policy even then.
	//
	// +optional
	// +kubebuilder:default=Respect
	Explicit Explicit `json:"explicit,omitempty"`

	// Of several policies that govern an object, the one with the highest priority
	// is asked first. It is compared with that of policies of the same scope.
	//
	// +optional
	// +kubebuilder:default=0
	Priority int32 `json:"priority,omitempty"`

	// Policies of an object's namespace may go first. For a ClusterGCPolicy only,
	// which goes first without it.
	//
	// +optional
	Overridable bool `json:"overridable,omitempty"`

	// What the module may ask for. Nothing is allowed that is not listed.
	//
	// +optional
	Grants *Grants `json:"grants,omitempty"`

	// The account that reads for the module. What it may not read is withheld from
	// the module.
	//
	// +optional
	ServiceAccount *ServiceAccountReference `json:"serviceAccount,omitempty"`
}

// ResourceRule names resources: each of its groups with each of its resources.
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

	// Resources, as in the paths of the API server, such as persistentvolumeclaims;
	// * is all.
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
	// A name for the condition, for messages.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`

	// An expression in CEL with one variable, object. An object is governed if it is
	// true, and is not if it is false or null; an error is a fault.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=8192
	Expression string `json:"expression"`
}

// ModuleReference names a module.
type ModuleReference struct {
	// PolicyModule or ClusterPolicyModule; without it, the one of the same scope. A
	// ClusterGCPolicy or ClusterFinalizer can name a ClusterPolicyModule only.
	//
	// +optional
	// +kubebuilder:validation:Enum=PolicyModule;ClusterPolicyModule
	Kind string `json:"kind,omitempty"`

	// The name of the module.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// The SHA-256 digest of the module's content, as in its status.digest. Required
	// with mode: Enforce and with grants: a module with other content is not
	// evaluated. Print it with: gleaner module digest.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[0-9a-f]{64}$')`,message="write 64 hexadecimal digits in lower case, as gleaner module digest prints them, without a prefix"
	Digest string `json:"digest,omitempty"`
}

// Grants are what a policy's module may ask for.
type Grants struct {
	// The objects that it may read.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Read []ReadGrant `json:"read,omitempty"`
}

// ReadGrant allows to read objects: each of its groups with each of its
// resources, in each of its namespaces.
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

	// Resources, as in the paths of the API server, such as persistentvolumeclaims;
	// * is all.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?|[*])$')`,message="write the plural in lower case and without a subresource, such as deployments, or * for all"
	// +listType=atomic
	Resources []string `json:"resources"`

	// Namespaces of the objects; * is all, and without it only objects outside of
	// namespaces can be read. For a ClusterGCPolicy or ClusterFinalizer only: the
	// module of a GCPolicy or Finalizer reads in the namespace of that.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^([a-z0-9]([a-z0-9-]*[a-z0-9])?|[*])$')`,message="write the name of a namespace, or * for all"
	// +listType=atomic
	Namespaces []string `json:"namespaces,omitempty"`
}

// ServiceAccountReference names a service account.
type ServiceAccountReference struct {
	// Its namespace. A ClusterGCPolicy or ClusterFinalizer needs it; a GCPolicy or
	// Finalizer has it from its own.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// Its name.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}
