package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// Condition types.
const (
	// ConditionAccepted (policies, finalizers, archive policies) reports whether the
	// spec is valid: its selectors and expressions compile, and its resources may be
	// governed.
	ConditionAccepted = "Accepted"

	// ConditionModuleReady (policies, finalizers) reports whether the policy can be
	// evaluated: the module is compiled and implements the hooks, or the verdicts
	// are fixed.
	ConditionModuleReady = "ModuleReady"

	// ConditionEnforcing (policies, finalizers) reports whether decisions are
	// carried out.
	ConditionEnforcing = "Enforcing"

	// ConditionOverlapping (policies) reports whether another policy is evaluated
	// first for some of the same resources.
	ConditionOverlapping = "Overlapping"

	// ConditionAttached (finalizers, archive policies) reports whether the finalizer
	// is added to objects when they are created.
	ConditionAttached = "Attached"

	// ConditionArchiving (archive policies) reports whether objects are archived: the
	// archive accepts them.
	ConditionArchiving = "Archiving"

	// ConditionFetched (modules) reports whether the module's content was fetched
	// and matches its digest.
	ConditionFetched = "Fetched"

	// ConditionCompiled (modules) reports whether the module is compiled.
	ConditionCompiled = "Compiled"
)

// MaxStatusResources is the maximum number of resources in the status of a policy.
const MaxStatusResources = 256

// GCPolicyStatus is the status of GCPolicy and ClusterGCPolicy.
type GCPolicyStatus struct {
	// Conditions of the policy: Accepted, ModuleReady, Enforcing and Overlapping.
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

	// The SHA-256 digest of the module's content.
	//
	// +optional
	Digest string `json:"digest,omitempty"`

	// The engine of the policy: Fixed, Rego or Wasm.
	//
	// +optional
	Engine Engine `json:"engine,omitempty"`

	// The version of the request and verdict documents that the module uses.
	//
	// +optional
	ABI string `json:"abi,omitempty"`

	// How much of the object the module receives: the least of spec.needs and of what the module
	// reads. For Rego, that is known from its rules.
	//
	// +optional
	Needs Need `json:"needs,omitempty"`

	// Hooks that the policy implements.
	//
	// +optional
	// +listType=set
	Hooks []string `json:"hooks,omitempty"`

	// Number of times that each decision was made since Gleaner started, including
	// decisions that were not carried out because of the mode.
	//
	// +optional
	Decisions map[string]int64 `json:"decisions,omitempty"`

	// Number of objects that have a hold because of this policy.
	//
	// +optional
	Held int64 `json:"held,omitempty"`

	// Resources that the policy governs, as resource.group, at most 256.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=256
	// +listType=set
	Resources []string `json:"resources,omitempty"`
}

// Engine is what evaluates a policy.
type Engine string

// The engines.
const (
	EngineFixed Engine = "Fixed"
	EngineRego  Engine = "Rego"
	EngineWasm  Engine = "Wasm"
)

// PolicyModuleStatus is the status of PolicyModule and ClusterPolicyModule.
type PolicyModuleStatus struct {
	// Conditions of the module: Fetched and Compiled.
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

	// The SHA-256 digest of the module's content, decompressed.
	//
	// +optional
	Digest string `json:"digest,omitempty"`

	// The engine of the module: Rego or Wasm.
	//
	// +optional
	Engine Engine `json:"engine,omitempty"`

	// The version of the request and verdict documents that the module uses.
	//
	// +optional
	ABI string `json:"abi,omitempty"`

	// How much of the object the module reads at most: known from the rules for Rego, and declared by
	// other modules.
	//
	// +optional
	Needs Need `json:"needs,omitempty"`

	// Hooks that the module implements.
	//
	// +optional
	// +listType=set
	Hooks []string `json:"hooks,omitempty"`

	// The trusted signers that signed the image. Empty if no signature is required.
	//
	// +optional
	// +listType=atomic
	Signers []string `json:"signers,omitempty"`
}
