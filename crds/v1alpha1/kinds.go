package v1alpha1

import metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

// GCPolicy says what becomes of objects of its namespace when their owners go,
// and of their dependents when they are deleted themselves.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=gcpolicies,singular=gcpolicy,shortName=gcp,categories=gleaner
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

	// What is wanted.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.namespaceSelector)",fieldPath=".namespaceSelector",reason=FieldValueForbidden,message="a GCPolicy governs its own namespace alone: leave namespaceSelector out, or write a ClusterGCPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.overridable)",fieldPath=".overridable",reason=FieldValueForbidden,message="only cluster policies can be overridden: leave overridable out, or write a ClusterGCPolicy"
	// +kubebuilder:validation:XValidation:rule="self.resources.all(r, !('*' in r.apiGroups) && !('*' in r.resources))",fieldPath=".resources",message="a GCPolicy can't govern *: write groups and resources by name, or write a ClusterGCPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.serviceAccount) || !has(self.serviceAccount.namespace)",fieldPath=".serviceAccount.namespace",reason=FieldValueForbidden,message="the service account of a GCPolicy is one of its own namespace: leave serviceAccount.namespace out, or write a ClusterGCPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchConditions) || self.matchConditions.size() == 0 || has(self.serviceAccount)",fieldPath=".serviceAccount",reason=FieldValueRequired,message="the objects that matchConditions look at are read as a service account of the GCPolicy's namespace: write serviceAccount: {name: …}, of one that may get them, leave matchConditions out, or write a ClusterGCPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.grants) || !has(self.grants.read) || self.grants.read.all(g, !has(g.namespaces))",fieldPath=".grants.read",message="the module of a GCPolicy reads its own namespace alone: leave namespaces out, or write a ClusterGCPolicy"
	Spec GCPolicySpec `json:"spec"`

	// What Gleaner makes of it.
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

// ClusterGCPolicy says what becomes of objects of any namespace, or of none,
// when their owners go, and of their dependents when they are deleted themselves.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=clustergcpolicies,singular=clustergcpolicy,scope=Cluster,shortName=cgcp,categories=gleaner
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
type ClusterGCPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is wanted.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.module) || !has(self.module.kind) || self.module.kind == 'ClusterPolicyModule'",fieldPath=".module.kind",message="a ClusterGCPolicy has no namespace to look for a PolicyModule in: write ClusterPolicyModule, or a GCPolicy"
	// +kubebuilder:validation:XValidation:rule="!has(self.serviceAccount) || has(self.serviceAccount.namespace)",fieldPath=".serviceAccount.namespace",reason=FieldValueRequired,message="a ClusterGCPolicy has no namespace of its own: write that of the service account, serviceAccount: {namespace: …, name: …}"
	Spec GCPolicySpec `json:"spec"`

	// What Gleaner makes of it.
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

// PolicyModule is a program, in Rego or as WebAssembly, that decides for the
// policies of its namespace.
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

	// Where the module comes from, and what it may use.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.rego) || !has(self.rego.configMap) || !has(self.rego.configMap.namespace)",fieldPath=".rego.configMap.namespace",reason=FieldValueForbidden,message="the ConfigMap of a PolicyModule is one of its own namespace: leave configMap.namespace out, or write a ClusterPolicyModule"
	// +kubebuilder:validation:XValidation:rule="!has(self.rego) || !has(self.rego.pullSecrets) || self.rego.pullSecrets.all(s, !has(s.namespace))",fieldPath=".rego.pullSecrets",message="the Secrets of a PolicyModule are of its own namespace: leave their namespace out, or write a ClusterPolicyModule"
	// +kubebuilder:validation:XValidation:rule="!has(self.wasm) || !has(self.wasm.configMap) || !has(self.wasm.configMap.namespace)",fieldPath=".wasm.configMap.namespace",reason=FieldValueForbidden,message="the ConfigMap of a PolicyModule is one of its own namespace: leave configMap.namespace out, or write a ClusterPolicyModule"
	// +kubebuilder:validation:XValidation:rule="!has(self.wasm) || !has(self.wasm.pullSecrets) || self.wasm.pullSecrets.all(s, !has(s.namespace))",fieldPath=".wasm.pullSecrets",message="the Secrets of a PolicyModule are of its own namespace: leave their namespace out, or write a ClusterPolicyModule"
	// +kubebuilder:validation:XValidation:rule="!has(self.limits) || !has(self.limits.memory) || !isQuantity(string(self.limits.memory)) || quantity(string(self.limits.memory)).compareTo(quantity('64Mi')) <= 0 || quantity(string(self.limits.memory)).compareTo(quantity('512Mi')) > 0",fieldPath=".limits.memory",message="a PolicyModule may have at most 64Mi of memory: write that or less, or write a ClusterPolicyModule"
	Spec PolicyModuleSpec `json:"spec"`

	// What Gleaner makes of it.
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

// ClusterPolicyModule is a program, in Rego or as WebAssembly, that decides for
// policies anywhere.
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

	// Where the module comes from, and what it may use.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.rego) || !has(self.rego.configMap) || has(self.rego.configMap.namespace)",fieldPath=".rego.configMap.namespace",reason=FieldValueRequired,message="a ClusterPolicyModule has no namespace of its own: write that of the ConfigMap, configMap: {namespace: …, name: …, key: …}"
	// +kubebuilder:validation:XValidation:rule="!has(self.rego) || !has(self.rego.pullSecrets) || self.rego.pullSecrets.all(s, has(s.namespace))",fieldPath=".rego.pullSecrets",message="a ClusterPolicyModule has no namespace of its own: write that of each Secret, pullSecrets: [{namespace: …, name: …}]"
	// +kubebuilder:validation:XValidation:rule="!has(self.wasm) || !has(self.wasm.configMap) || has(self.wasm.configMap.namespace)",fieldPath=".wasm.configMap.namespace",reason=FieldValueRequired,message="a ClusterPolicyModule has no namespace of its own: write that of the ConfigMap, configMap: {namespace: …, name: …, key: …}"
	// +kubebuilder:validation:XValidation:rule="!has(self.wasm) || !has(self.wasm.pullSecrets) || self.wasm.pullSecrets.all(s, has(s.namespace))",fieldPath=".wasm.pullSecrets",message="a ClusterPolicyModule has no namespace of its own: write that of each Secret, pullSecrets: [{namespace: …, name: …}]"
	Spec PolicyModuleSpec `json:"spec"`

	// What Gleaner makes of it.
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

// Finalizer has a module do what is to be done before objects of its namespace go.
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
// +kubebuilder:printcolumn:name="Stuck",type=integer,JSONPath=`.status.stuckCount`
// +kubebuilder:printcolumn:name="Released",type=integer,JSONPath=`.status.released`,priority=1
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name.size() <= 63",message="the finalizer is named after its resource, and may be no longer than 63 characters: write a shorter metadata.name"
// +kubebuilder:validation:XValidation:rule="!has(self.spec.after) || ['.gleaner.dev/' + self.metadata.name].all(own, self.spec.after.all(f, !f.endsWith(own)))",fieldPath=".spec.after",message="a finalizer can't wait for itself: leave it out of after"
type Finalizer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is wanted.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.finalizer)",fieldPath=".finalizer",reason=FieldValueForbidden,message="that of a Finalizer is always <namespace>.gleaner.dev/<name>: leave finalizer out, or write a ClusterFinalizer"
	// +kubebuilder:validation:XValidation:rule="!has(self.namespaceSelector)",fieldPath=".namespaceSelector",reason=FieldValueForbidden,message="a Finalizer is for its own namespace alone: leave namespaceSelector out, or write a ClusterFinalizer"
	// +kubebuilder:validation:XValidation:rule="!has(self.serviceAccount) || !has(self.serviceAccount.namespace)",fieldPath=".serviceAccount.namespace",reason=FieldValueForbidden,message="the service account of a Finalizer is one of its own namespace: leave serviceAccount.namespace out, or write a ClusterFinalizer"
	// +kubebuilder:validation:XValidation:rule="!has(self.matchConditions) || self.matchConditions.size() == 0 || has(self.serviceAccount)",fieldPath=".serviceAccount",reason=FieldValueRequired,message="the objects that matchConditions look at are read as a service account of the Finalizer's namespace: write serviceAccount: {name: …}, of one that may get them, leave matchConditions out, or write a ClusterFinalizer"
	// +kubebuilder:validation:XValidation:rule="!has(self.grants) || !has(self.grants.read) || self.grants.read.all(g, !has(g.namespaces))",fieldPath=".grants.read",message="the module of a Finalizer reads its own namespace alone: leave namespaces out, or write a ClusterFinalizer"
	// +kubebuilder:validation:XValidation:rule="!has(self.grants) || !has(self.grants.write) || self.grants.write.all(g, !has(g.namespaces))",fieldPath=".grants.write",message="the module of a Finalizer writes its own namespace alone: leave namespaces out, or write a ClusterFinalizer"
	// +kubebuilder:validation:XValidation:rule="!has(self.grants) || !has(self.grants.http) || self.grants.http.all(g, (!has(g.headersFrom) || g.headersFrom.all(f, !has(f.secretKeyRef.namespace))) && (!has(g.basicAuth) || !has(g.basicAuth.username.namespace) && !has(g.basicAuth.password.namespace)) && (!has(g.sigV4) || !has(g.sigV4.accessKeyID.namespace) && !has(g.sigV4.secretAccessKey.namespace) && (!has(g.sigV4.sessionToken) || !has(g.sigV4.sessionToken.namespace))) && (!has(g.ca) || (!has(g.ca.configMapKeyRef) || !has(g.ca.configMapKeyRef.namespace)) && (!has(g.ca.secretKeyRef) || !has(g.ca.secretKeyRef.namespace))))",fieldPath=".grants.http",reason=FieldValueForbidden,message="the Secrets and ConfigMaps of a Finalizer are of its own namespace: leave their namespace out, or write a ClusterFinalizer"
	Spec FinalizerSpec `json:"spec"`

	// What Gleaner makes of it.
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

// ClusterFinalizer has a module do what is to be done before objects of any
// namespace, or of none, go.
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
// +kubebuilder:printcolumn:name="Stuck",type=integer,JSONPath=`.status.stuckCount`
// +kubebuilder:printcolumn:name="Released",type=integer,JSONPath=`.status.released`,priority=1
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,priority=1
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterFinalizer struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// What is wanted.
	//
	// +kubebuilder:validation:XValidation:rule="has(self.finalizer)",fieldPath=".finalizer",reason=FieldValueRequired,message="write the entry of metadata.finalizers that is served, such as example.com/bucket"
	// +kubebuilder:validation:XValidation:rule="!has(self.finalizer) || !has(self.after) || !(self.finalizer in self.after)",fieldPath=".after",message="a finalizer can't wait for itself: leave it out of after"
	// +kubebuilder:validation:XValidation:rule="!has(self.module.kind) || self.module.kind == 'ClusterPolicyModule'",fieldPath=".module.kind",message="a ClusterFinalizer has no namespace to look for a PolicyModule in: write ClusterPolicyModule, or a Finalizer"
	// +kubebuilder:validation:XValidation:rule="!has(self.serviceAccount) || has(self.serviceAccount.namespace)",fieldPath=".serviceAccount.namespace",reason=FieldValueRequired,message="a ClusterFinalizer has no namespace of its own: write that of the service account, serviceAccount: {namespace: …, name: …}"
	// +kubebuilder:validation:XValidation:rule="!has(self.grants) || !has(self.grants.http) || self.grants.http.all(g, (!has(g.headersFrom) || g.headersFrom.all(f, has(f.secretKeyRef.namespace))) && (!has(g.basicAuth) || has(g.basicAuth.username.namespace) && has(g.basicAuth.password.namespace)) && (!has(g.sigV4) || has(g.sigV4.accessKeyID.namespace) && has(g.sigV4.secretAccessKey.namespace) && (!has(g.sigV4.sessionToken) || has(g.sigV4.sessionToken.namespace))) && (!has(g.ca) || (!has(g.ca.configMapKeyRef) || has(g.ca.configMapKeyRef.namespace)) && (!has(g.ca.secretKeyRef) || has(g.ca.secretKeyRef.namespace))))",fieldPath=".grants.http",reason=FieldValueRequired,message="a ClusterFinalizer has no namespace of its own: write that of each Secret and ConfigMap, such as secretKeyRef: {namespace: …, name: …, key: …}"
	Spec FinalizerSpec `json:"spec"`

	// What Gleaner makes of it.
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
