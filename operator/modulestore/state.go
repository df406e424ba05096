package modulestore

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/policies"
)

// A Ref names a PolicyModule, or a ClusterPolicyModule if it has no namespace.
type Ref struct{ Namespace, Name string }

// String returns the kind and name for messages.
func (r Ref) String() string {
	if r.Namespace == "" {
		return "ClusterPolicyModule " + r.Name
	}
	return "PolicyModule " + r.Namespace + "/" + r.Name
}

// A Resource is a PolicyModule or ClusterPolicyModule.
type Resource struct {
	Ref
	UID         types.UID
	Generation  int64
	Created     time.Time
	Terminating bool // its source may be deleted already
	Spec        v1alpha1.PolicyModuleSpec
}

// engine returns the module's engine.
func (r Resource) engine() v1alpha1.Engine {
	if r.Spec.Rego != nil {
		return v1alpha1.EngineRego
	}
	return v1alpha1.EngineWasm
}

// ConfigMap returns the ConfigMap that contains the module.
func (r Resource) ConfigMap() (types.NamespacedName, bool) {
	var ref *v1alpha1.ConfigMapKeyReference
	switch {
	case r.Spec.Rego != nil:
		ref = r.Spec.Rego.ConfigMap
	case r.Spec.Wasm != nil:
		ref = r.Spec.Wasm.ConfigMap
	}
	if ref == nil {
		return types.NamespacedName{}, false
	}
	return types.NamespacedName{Namespace: r.resolveNamespace(ref.Namespace), Name: ref.Name}, true
}

// inlineSize returns the size of the module in bytes if it is in the resource itself. It is 0
// if it is somewhere else.
func (r Resource) inlineSize() int64 {
	if r.Spec.Rego == nil || r.Spec.Rego.Inline == nil {
		return 0
	}
	return int64(len(*r.Spec.Rego.Inline))
}

// resolveNamespace returns the namespace of a reference: namespaced modules can only refer to their
// own namespace.
func (r Resource) resolveNamespace(namespace string) string {
	if r.Namespace != "" {
		return r.Namespace
	}
	return namespace
}

// remote reports whether the module is downloaded from a registry or URL.
func (r Resource) remote() bool {
	return r.Spec.Rego != nil && r.Spec.Rego.Image != "" || r.Spec.Wasm != nil && r.Spec.Wasm.ConfigMap == nil
}

// A Phase is the phase of a module, or of its use by a policy.
type Phase string

// The phases. The zero Phase is Loading.
const (
	Loading Phase = ""       // not known yet
	Ready   Phase = "Ready"  // can be evaluated
	Failed  Phase = "Failed" // can't be evaluated: see Err
)

// A Step is a step of loading a module.
type Step string

// The steps, in order.
const (
	Fetching   Step = "Fetching"
	Compiling  Step = "Compiling"
	Starting   Step = "Starting"
	Validating Step = "Validating" // the settings
)

// A Module is a compiled module: a stable handle, valid while the Store has a resource
// with this content or the module is in use.
type Module struct {
	Engine v1alpha1.Engine
	Digest string
	Hooks  []hostabi.Hook
	Needs  policies.Needs // how much of the object it reads
	Pinned bool           // content is pinned by digest

	// Signers are the trusted signers of its image. Empty if no signature is required.
	Signers []string

	content *content
}

// HasHook reports whether the module implements a hook.
func (m Module) HasHook(hook hostabi.Hook) bool { return slices.Contains(m.Hooks, hook) }

// A State is the state of a module.
type State struct {
	Phase  Phase
	Module Module // if Ready
	Step   Step   // if Loading or Failed: the current or failed step

	// Err is the error of a Failed module: a *source.Error or a *CompileError if the module
	// or its source caused it, an *ExclusionError if it must not be loaded. For a Ready module it is the error of a later fetch; the
	// content fetched before is still evaluated.
	Err error

	Since     time.Time // when the phase began
	NextRetry time.Time // zero: when something changes
}

// A UseState is the state of a module's use by a policy or finalizer.
type UseState struct {
	Phase     Phase
	Step      Step      // if Loading or Failed: Starting or Validating
	Evaluator Evaluator // if Ready

	// Err is the error of a Failed use: a *SettingsError, a *policies.Fault if the module
	// caused it, or any other error if the host did.
	Err error

	Since     time.Time
	NextRetry time.Time
}

// A SettingsError means that the module rejects the settings.
type SettingsError struct{ Reason string }

// Error implements error.
func (e *SettingsError) Error() string { return e.Reason }
