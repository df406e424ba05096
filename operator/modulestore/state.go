package modulestore

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/hostabi"
)

// Ref names a PolicyModule, or a ClusterPolicyModule if it has no namespace.
type Ref struct{ Namespace, Name string }

// String returns the name as messages have it.
func (r Ref) String() string {
	if r.Namespace == "" {
		return "ClusterPolicyModule " + r.Name
	}
	return "PolicyModule " + r.Namespace + "/" + r.Name
}

// Resource is a PolicyModule or ClusterPolicyModule as it was read.
type Resource struct {
	Ref
	UID         types.UID
	Generation  int64
	Terminating bool // it is being deleted: what it comes from may be gone already
	Spec        v1alpha1.PolicyModuleSpec
}

// engine is what the module is evaluated by.
func (r Resource) engine() v1alpha1.Engine {
	if r.Spec.Rego != nil {
		return v1alpha1.EngineRego
	}
	return v1alpha1.EngineWasm
}

// ConfigMap returns the ConfigMap that the module comes from.
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
	return types.NamespacedName{Namespace: r.within(ref.Namespace), Name: ref.Name}, true
}

// within is the namespace that a reference leads to: a namespaced module refers to
// nothing outside its own.
func (r Resource) within(namespace string) string {
	if r.Namespace != "" {
		return r.Namespace
	}
	return namespace
}

// remote reports whether the module comes from a server outside the cluster's API.
func (r Resource) remote() bool {
	return r.Spec.Rego != nil && r.Spec.Rego.Image != "" || r.Spec.Wasm != nil && r.Spec.Wasm.ConfigMap == nil
}

// Phase is how far a module, or its use by a policy, has come.
type Phase string

// The phases. The zero Phase is Loading.
const (
	Loading Phase = ""       // it is not known yet
	Ready   Phase = "Ready"  // it can be evaluated
	Failed  Phase = "Failed" // it can't be evaluated: see Err
)

// Step is what a module is on its way through.
type Step string

// The steps, in order.
const (
	Fetching   Step = "Fetching"
	Compiling  Step = "Compiling"
	Starting   Step = "Starting"
	Validating Step = "Validating" // whether the settings are valid
)

// Module is a module that can be evaluated: a stable handle, valid for as long as the
// Store has a resource with this content or somebody uses it.
type Module struct {
	Engine v1alpha1.Engine
	Digest string
	Hooks  []hostabi.Hook
	Pinned bool // its resource can't come to mean another module unnoticed

	content *content
}

// Answers reports whether the module answers a hook.
func (m Module) Answers(hook hostabi.Hook) bool { return slices.Contains(m.Hooks, hook) }

// State is what has become of a module.
type State struct {
	Phase  Phase
	Module Module // of Ready
	Step   Step   // of Loading and Failed: the one that is not done

	// Err is why the module Failed: a *source.Error or a *CompileError when the module or
	// its source is to blame. Of one that is Ready it is why it could not be fetched
	// again; what was fetched before is still evaluated.
	Err error

	Since     time.Time // when it came to this phase
	NextRetry time.Time // zero: not before something changes
}

// UseState is what has become of a module's use by a policy or finalizer.
type UseState struct {
	Phase     Phase
	Step      Step      // of Loading and Failed: Starting or Validating
	Evaluator Evaluator // of Ready

	// Err is why it Failed: a *SettingsError, a *policies.Fault when the module is to
	// blame, or any other error when the host is.
	Err error

	Since     time.Time
	NextRetry time.Time
}

// SettingsError is settings that the module refuses.
type SettingsError struct{ Reason string }

// Error implements error.
func (e *SettingsError) Error() string { return e.Reason }
