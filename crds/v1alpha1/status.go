package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Types of conditions.
const (
	// ConditionAccepted (policies) says that the policy makes sense: its selectors
	// and expressions can be read, and its resources may be governed.
	ConditionAccepted = "Accepted"

	// ConditionModuleReady (policies) says that what decides is there: the module
	// is compiled and answers the hooks, or the verdicts are fixed.
	ConditionModuleReady = "ModuleReady"

	// ConditionEnforcing (policies) says that decisions are carried out.
	ConditionEnforcing = "Enforcing"

	// ConditionOverlapping (policies) says that another policy goes first on some
	// of the same resources.
	ConditionOverlapping = "Overlapping"

	// ConditionAttached (finalizers) says that the finalizer is put on objects in the
	// write that creates them.
	ConditionAttached = "Attached"

	// ConditionFetched (modules) says that the module's bytes are there, and are
	// those that its digest names.
	ConditionFetched = "Fetched"

	// ConditionCompiled (modules) says that it can be asked.
	ConditionCompiled = "Compiled"
)

// MaxStatusResources bounds the resources that the status of a policy lists.
const MaxStatusResources = 256

// GCPolicyStatus is what GCPolicy and ClusterGCPolicy have in common.
type GCPolicyStatus struct {
	// Accepted, ModuleReady, Enforcing and Overlapping.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The generation of the policy that this status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// What is wrong, in one word: the reason of the first condition that says so.
	// Empty if nothing is.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// The SHA-256 digest of the module that decides.
	//
	// +optional
	Digest string `json:"digest,omitempty"`

	// What decides: Fixed, Rego or Wasm.
	//
	// +optional
	Engine Engine `json:"engine,omitempty"`

	// The version of the documents that the module is asked with.
	//
	// +optional
	ABI string `json:"abi,omitempty"`

	// The hooks that are answered.
	//
	// +optional
	// +listType=set
	Hooks []string `json:"hooks,omitempty"`

	// How often each decision was made since Gleaner started, also where nothing was
	// done because of the mode.
	//
	// +optional
	Decisions map[string]int64 `json:"decisions,omitempty"`

	// How many objects have a hold because of this policy.
	//
	// +optional
	Held int64 `json:"held,omitempty"`

	// The resources that the policy's rules come to, as resource.group; not all of
	// them if there are very many.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +listType=set
	Resources []string `json:"resources,omitempty"`
}

// Engine is what carries a policy out.
type Engine string

// The engines.
const (
	EngineFixed Engine = "Fixed"
	EngineRego  Engine = "Rego"
	EngineWasm  Engine = "Wasm"
)

// PolicyModuleStatus is what PolicyModule and ClusterPolicyModule have in common.
type PolicyModuleStatus struct {
	// Fetched and Compiled.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The generation of the module that this status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// What is wrong, in one word: the reason of the first condition that says so.
	// Empty if nothing is.
	//
	// +optional
	Reason string `json:"reason,omitempty"`

	// The SHA-256 digest of the module, decompressed.
	//
	// +optional
	Digest string `json:"digest,omitempty"`

	// What it runs on: Rego or Wasm.
	//
	// +optional
	Engine Engine `json:"engine,omitempty"`

	// The version of the documents that it is asked with.
	//
	// +optional
	ABI string `json:"abi,omitempty"`

	// The hooks that it answers.
	//
	// +optional
	// +listType=set
	Hooks []string `json:"hooks,omitempty"`
}
