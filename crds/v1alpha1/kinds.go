package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GCPolicy defines what happens to objects in its namespace after their owners are
// deleted, and to the dependents of objects that are deleted.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=gcpolicies,singular=gcpolicy,shortName=gcpol,categories=gleaner
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Module",type=string,JSONPath=`.spec.module.name`
// +kubebuilder:printcolumn:name="Collect",type=string,JSONPath=`.spec.fixed.collect.decision`
// +kubebuilder:printcolumn:name="Propagate",type=string,JSONPath=`.spec.fixed.propagate.decision`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="ModuleReady")].status`
// +kubebuilder:printcolumn:name="Enforcing",type=string,JSONPath=`.status.conditions[?(@.type=="Enforcing")].status`
// +kubebuilder:printcolumn:name="Held",type=integer,JSONPath=`.status.held`,priority=1
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type GCPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired policy.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.namespaceSelector)",fieldPath=".namespaceSelector",reason=FieldValueForbidden,message="a GCPolicy governs its own namespace only: remove namespaceSelector, or create a ClusterGCPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.fixed) || !has(self.fixed.protect)",fieldPath=".fixed.protect",reason=FieldValueForbidden,message="only a ClusterGCPolicy can protect objects: remove protect, or create a ClusterGCPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.hooks) || !('protect' in self.hooks)",fieldPath=".hooks",reason=FieldValueForbidden,message="only a ClusterGCPolicy can protect objects: remove protect from hooks, or create a ClusterGCPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.overridable)",fieldPath=".overridable",reason=FieldValueForbidden,message="only a ClusterGCPolicy can be overridden: remove overridable, or create a ClusterGCPolicy"
	// +kubebuilder:validation:XValidation:rule="self.resources.all(r, !('*' in r.apiGroups) && !('*' in r.resources))",fieldPath=".resources",message="a GCPolicy cannot govern *: list groups and resources by name, or create a ClusterGCPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.serviceAccount) || !has(self.serviceAccount.namespace)",fieldPath=".serviceAccount.namespace",reason=FieldValueForbidden,message="the service account of a GCPolicy is in its own namespace: remove serviceAccount.namespace, or create a ClusterGCPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchConditions) || self.matchConditions.size() == 0 || has(self.serviceAccount)",fieldPath=".serviceAccount",reason=FieldValueRequired,message="matchConditions in a GCPolicy need a service account that may get the objects: set serviceAccount: {name: …}, remove matchConditions, or create a ClusterGCPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.grants) || !has(self.grants.read) || self.grants.read.all(g, !has(g.namespaces))",fieldPath=".grants.read",message="the module of a GCPolicy reads its own namespace only: remove namespaces, or create a ClusterGCPolicy"
	Spec GCPolicySpec `json:"spec"`

	// The observed state of the policy.
	//
	// +optional
	Status GCPolicyStatus `json:"status,omitempty"`
}

// GCPolicyList is a list of GCPolicies.
//
// +kubebuilder:object:root=true
type GCPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []GCPolicy `json:"items"`
}

// ClusterGCPolicy defines what happens to objects in any namespace, and to
// cluster-scoped objects, after their owners are deleted, and to the dependents of
// objects that are deleted.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=clustergcpolicies,singular=clustergcpolicy,scope=Cluster,shortName=cgcpol,categories=gleaner
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Module",type=string,JSONPath=`.spec.module.name`
// +kubebuilder:printcolumn:name="Collect",type=string,JSONPath=`.spec.fixed.collect.decision`
// +kubebuilder:printcolumn:name="Propagate",type=string,JSONPath=`.spec.fixed.propagate.decision`
// +kubebuilder:printcolumn:name="Protect",type=string,JSONPath=`.spec.fixed.protect.decision`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="ModuleReady")].status`
// +kubebuilder:printcolumn:name="Enforcing",type=string,JSONPath=`.status.conditions[?(@.type=="Enforcing")].status`
// +kubebuilder:printcolumn:name="Held",type=integer,JSONPath=`.status.held`,priority=1
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterGCPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired policy.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.module) || !has(self.module.kind) || self.module.kind == 'ClusterPolicyModule'",fieldPath=".module.kind",message="a ClusterGCPolicy cannot refer to a PolicyModule: write ClusterPolicyModule, or create a GCPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.serviceAccount) || has(self.serviceAccount.namespace)",fieldPath=".serviceAccount.namespace",reason=FieldValueRequired,message="a ClusterGCPolicy has no namespace: set the namespace of the service account, serviceAccount: {namespace: …, name: …}"
	Spec GCPolicySpec `json:"spec"`

	// The observed state of the policy.
	//
	// +optional
	Status GCPolicyStatus `json:"status,omitempty"`
}

// ClusterGCPolicyList is a list of ClusterGCPolicies.
//
// +kubebuilder:object:root=true
type ClusterGCPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterGCPolicy `json:"items"`
}

// PolicyModule is a program in Rego or WebAssembly that policies and finalizers in
// its namespace evaluate.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=policymodules,singular=policymodule,shortName=pmod,categories=gleaner
// +kubebuilder:printcolumn:name="Engine",type=string,JSONPath=`.status.engine`
// +kubebuilder:printcolumn:name="Hooks",type=string,JSONPath=`.status.hooks`
// +kubebuilder:printcolumn:name="Fetched",type=string,JSONPath=`.status.conditions[?(@.type=="Fetched")].status`
// +kubebuilder:printcolumn:name="Compiled",type=string,JSONPath=`.status.conditions[?(@.type=="Compiled")].status`
// +kubebuilder:printcolumn:name="Digest",type=string,JSONPath=`.status.digest`
// +kubebuilder:printcolumn:name="ABI",type=string,JSONPath=`.status.abi`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type PolicyModule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The source of the module, and its limits.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.rego) || !has(self.rego.configMap) || !has(self.rego.configMap.namespace)",fieldPath=".rego.configMap.namespace",reason=FieldValueForbidden,message="the ConfigMap of a PolicyModule is in its own namespace: remove configMap.namespace, or create a ClusterPolicyModule"
	// +kubebuilder:validation:XValidation:rule="!has(self.rego) || !has(self.rego.pullSecrets) || self.rego.pullSecrets.all(s, !has(s.namespace))",fieldPath=".rego.pullSecrets",message="the Secrets of a PolicyModule are in its own namespace: remove their namespace, or create a ClusterPolicyModule"
	// +kubebuilder:validation:XValidation:rule="!has(self.wasm) || !has(self.wasm.configMap) || !has(self.wasm.configMap.namespace)",fieldPath=".wasm.configMap.namespace",reason=FieldValueForbidden,message="the ConfigMap of a PolicyModule is in its own namespace: remove configMap.namespace, or create a ClusterPolicyModule"
	// +kubebuilder:validation:XValidation:rule="!has(self.wasm) || !has(self.wasm.pullSecrets) || self.wasm.pullSecrets.all(s, !has(s.namespace))",fieldPath=".wasm.pullSecrets",message="the Secrets of a PolicyModule are in its own namespace: remove their namespace, or create a ClusterPolicyModule"
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !has(self.limits.memory) || !isQuantity(string(self.limits.memory)) || quantity(string(self.limits.memory)).compareTo(quantity('64Mi')) <= 0 || quantity(string(self.limits.memory)).compareTo(quantity('512Mi')) > 0",fieldPath=".limits.memory",message="a PolicyModule may have at most 64Mi of memory: write 64Mi or less, or create a ClusterPolicyModule"
	Spec PolicyModuleSpec `json:"spec"`

	// The observed state of the module.
	//
	// +optional
	Status PolicyModuleStatus `json:"status,omitempty"`
}

// PolicyModuleList is a list of PolicyModules.
//
// +kubebuilder:object:root=true
type PolicyModuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []PolicyModule `json:"items"`
}

// ClusterPolicyModule is a program in Rego or WebAssembly that policies and
// finalizers in any namespace, and cluster-scoped ones, evaluate.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=clusterpolicymodules,singular=clusterpolicymodule,scope=Cluster,shortName=cpmod,categories=gleaner
// +kubebuilder:printcolumn:name="Engine",type=string,JSONPath=`.status.engine`
// +kubebuilder:printcolumn:name="Hooks",type=string,JSONPath=`.status.hooks`
// +kubebuilder:printcolumn:name="Fetched",type=string,JSONPath=`.status.conditions[?(@.type=="Fetched")].status`
// +kubebuilder:printcolumn:name="Compiled",type=string,JSONPath=`.status.conditions[?(@.type=="Compiled")].status`
// +kubebuilder:printcolumn:name="Digest",type=string,JSONPath=`.status.digest`
// +kubebuilder:printcolumn:name="ABI",type=string,JSONPath=`.status.abi`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterPolicyModule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The source of the module, and its limits.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.rego) || !has(self.rego.configMap) || has(self.rego.configMap.namespace)",fieldPath=".rego.configMap.namespace",reason=FieldValueRequired,message="a ClusterPolicyModule has no namespace: set the namespace of the ConfigMap, configMap: {namespace: …, name: …, key: …}"
	// +kubebuilder:validation:XValidation:rule="!has(self.rego) || !has(self.rego.pullSecrets) || self.rego.pullSecrets.all(s, has(s.namespace))",fieldPath=".rego.pullSecrets",message="a ClusterPolicyModule has no namespace: set the namespace of each Secret, pullSecrets: [{namespace: …, name: …}]"
	// +kubebuilder:validation:XValidation:rule="!has(self.wasm) || !has(self.wasm.configMap) || has(self.wasm.configMap.namespace)",fieldPath=".wasm.configMap.namespace",reason=FieldValueRequired,message="a ClusterPolicyModule has no namespace: set the namespace of the ConfigMap, configMap: {namespace: …, name: …, key: …}"
	// +kubebuilder:validation:XValidation:rule="!has(self.wasm) || !has(self.wasm.pullSecrets) || self.wasm.pullSecrets.all(s, has(s.namespace))",fieldPath=".wasm.pullSecrets",message="a ClusterPolicyModule has no namespace: set the namespace of each Secret, pullSecrets: [{namespace: …, name: …}]"
	Spec PolicyModuleSpec `json:"spec"`

	// The observed state of the module.
	//
	// +optional
	Status PolicyModuleStatus `json:"status,omitempty"`
}

// ClusterPolicyModuleList is a list of ClusterPolicyModules.
//
// +kubebuilder:object:root=true
type ClusterPolicyModuleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterPolicyModule `json:"items"`
}

// Finalizer declares a finalizer on objects in its namespace, and the module that
// runs before they are deleted.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=finalizers,singular=finalizer,shortName=fin,categories=gleaner
// +kubebuilder:printcolumn:name="Finalizer",type=string,JSONPath=`.status.finalizer`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Module",type=string,JSONPath=`.spec.module.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="ModuleReady")].status`
// +kubebuilder:printcolumn:name="Enforcing",type=string,JSONPath=`.status.conditions[?(@.type=="Enforcing")].status`
// +kubebuilder:printcolumn:name="Pending",type=integer,JSONPath=`.status.pending`
// +kubebuilder:printcolumn:name="Stalled",type=integer,JSONPath=`.status.stalled`
// +kubebuilder:printcolumn:name="Released",type=integer,JSONPath=`.status.released`,priority=1
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the name of the finalizer is that of the resource, at most 63 characters: write a shorter metadata.name"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.after) || ['.gleaner.dev/' + self.metadata.name].all(own, self.spec.after.all(f, !f.endsWith(own)))",fieldPath=".spec.after",message="a finalizer cannot wait for itself: remove it from after"
type Finalizer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired finalizer.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.finalizer)",fieldPath=".finalizer",reason=FieldValueForbidden,message="the finalizer of a Finalizer is always <namespace>.gleaner.dev/<name>: remove finalizer, or create a ClusterFinalizer"
	// +kubebuilder:validation:XValidation:rule="!has(self.namespaceSelector)",fieldPath=".namespaceSelector",reason=FieldValueForbidden,message="a Finalizer applies to its own namespace only: remove namespaceSelector, or create a ClusterFinalizer"
	// +kubebuilder:validation:XValidation:rule="!has(self.serviceAccount) || !has(self.serviceAccount.namespace)",fieldPath=".serviceAccount.namespace",reason=FieldValueForbidden,message="the service account of a Finalizer is in its own namespace: remove serviceAccount.namespace, or create a ClusterFinalizer"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchConditions) || self.matchConditions.size() == 0 || has(self.serviceAccount)",fieldPath=".serviceAccount",reason=FieldValueRequired,message="matchConditions in a Finalizer need a service account that may get the objects: set serviceAccount: {name: …}, remove matchConditions, or create a ClusterFinalizer"
	// +kubebuilder:validation:XValidation:rule="!has(self.grants) || !has(self.grants.read) || self.grants.read.all(g, !has(g.namespaces))",fieldPath=".grants.read",message="the module of a Finalizer reads its own namespace only: remove namespaces, or create a ClusterFinalizer"
	// +kubebuilder:validation:XValidation:rule="!has(self.grants) || !has(self.grants.write) || self.grants.write.all(g, !has(g.namespaces))",fieldPath=".grants.write",message="the module of a Finalizer writes its own namespace only: remove namespaces, or create a ClusterFinalizer"
	// +kubebuilder:validation:XValidation:rule="!has(self.grants) || !has(self.grants.http) || self.grants.http.all(g, (!has(g.headersFrom) || g.headersFrom.all(f, !has(f.secretKeyRef.namespace))) && (!has(g.basicAuth) || !has(g.basicAuth.username.namespace) && !has(g.basicAuth.password.namespace)) && (!has(g.sigV4) || !has(g.sigV4.accessKeyID.namespace) && !has(g.sigV4.secretAccessKey.namespace) && (!has(g.sigV4.sessionToken) || !has(g.sigV4.sessionToken.namespace))) && (!has(g.ca) || (!has(g.ca.configMapKeyRef) || !has(g.ca.configMapKeyRef.namespace)) && (!has(g.ca.secretKeyRef) || !has(g.ca.secretKeyRef.namespace))))",fieldPath=".grants.http",reason=FieldValueForbidden,message="the Secrets and ConfigMaps of a Finalizer are in its own namespace: remove their namespace, or create a ClusterFinalizer"
	Spec FinalizerSpec `json:"spec"`

	// The observed state of the finalizer.
	//
	// +optional
	Status FinalizerStatus `json:"status,omitempty"`
}

// FinalizerList is a list of Finalizers.
//
// +kubebuilder:object:root=true
type FinalizerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Finalizer `json:"items"`
}

// ClusterFinalizer declares a finalizer on objects in any namespace or on
// cluster-scoped objects, and the module that runs before they are deleted.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=clusterfinalizers,singular=clusterfinalizer,scope=Cluster,shortName=cfin,categories=gleaner
// +kubebuilder:printcolumn:name="Finalizer",type=string,JSONPath=`.status.finalizer`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.mode`
// +kubebuilder:printcolumn:name="Module",type=string,JSONPath=`.spec.module.name`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="ModuleReady")].status`
// +kubebuilder:printcolumn:name="Enforcing",type=string,JSONPath=`.status.conditions[?(@.type=="Enforcing")].status`
// +kubebuilder:printcolumn:name="Pending",type=integer,JSONPath=`.status.pending`
// +kubebuilder:printcolumn:name="Stalled",type=integer,JSONPath=`.status.stalled`
// +kubebuilder:printcolumn:name="Released",type=integer,JSONPath=`.status.released`,priority=1
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterFinalizer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired finalizer.
	//
	// +kubebuilder:validation:XValidation:rule="has(self.finalizer)",fieldPath=".finalizer",reason=FieldValueRequired,message="write the finalizer as domain/name, such as example.com/bucket"
	// +kubebuilder:validation:XValidation:rule="!has(self.finalizer) || !has(self.after) || !(self.finalizer in self.after)",fieldPath=".after",message="a finalizer cannot wait for itself: remove it from after"
	// +kubebuilder:validation:XValidation:rule="!has(self.module.kind) || self.module.kind == 'ClusterPolicyModule'",fieldPath=".module.kind",message="a ClusterFinalizer cannot refer to a PolicyModule: write ClusterPolicyModule, or create a Finalizer"
	// +kubebuilder:validation:XValidation:rule="!has(self.serviceAccount) || has(self.serviceAccount.namespace)",fieldPath=".serviceAccount.namespace",reason=FieldValueRequired,message="a ClusterFinalizer has no namespace: set the namespace of the service account, serviceAccount: {namespace: …, name: …}"
	// +kubebuilder:validation:XValidation:rule="!has(self.grants) || !has(self.grants.http) || self.grants.http.all(g, (!has(g.headersFrom) || g.headersFrom.all(f, has(f.secretKeyRef.namespace))) && (!has(g.basicAuth) || has(g.basicAuth.username.namespace) && has(g.basicAuth.password.namespace)) && (!has(g.sigV4) || has(g.sigV4.accessKeyID.namespace) && has(g.sigV4.secretAccessKey.namespace) && (!has(g.sigV4.sessionToken) || has(g.sigV4.sessionToken.namespace))) && (!has(g.ca) || (!has(g.ca.configMapKeyRef) || has(g.ca.configMapKeyRef.namespace)) && (!has(g.ca.secretKeyRef) || has(g.ca.secretKeyRef.namespace))))",fieldPath=".grants.http",reason=FieldValueRequired,message="a ClusterFinalizer has no namespace: set the namespace of each Secret and ConfigMap, such as secretKeyRef: {namespace: …, name: …, key: …}"
	Spec FinalizerSpec `json:"spec"`

	// The observed state of the finalizer.
	//
	// +optional
	Status FinalizerStatus `json:"status,omitempty"`
}

// ClusterFinalizerList is a list of ClusterFinalizers.
//
// +kubebuilder:object:root=true
type ClusterFinalizerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterFinalizer `json:"items"`
}
