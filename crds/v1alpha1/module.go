package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PolicyModuleSpec is what PolicyModule and ClusterPolicyModule have in common.
//
// +kubebuilder:validation:XValidation:rule="has(self.rego) != has(self.wasm)",message="write exactly one of rego and wasm"
type PolicyModuleSpec struct {
	// A module in Rego. Either this or wasm.
	//
	// +optional
	Rego *RegoSource `json:"rego,omitempty"`

	// A module as WebAssembly. Either this or rego.
	//
	// +optional
	Wasm *WasmSource `json:"wasm,omitempty"`

	// The SHA-256 digest of the module itself, decompressed. Content with another
	// digest is rejected. Policies pin their module by module.digest of their own.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[0-9a-f]{64}$')`,message="write 64 hexadecimal digits in lower case, as sha256sum prints them, without a prefix"
	SHA256 string `json:"sha256,omitempty"`

	// What one call of the module may use.
	//
	// +optional
	Limits *Limits `json:"limits,omitempty"`
}

// RegoSource is where a module in Rego comes from.
//
// +kubebuilder:validation:XValidation:rule="[has(self.inline), has(self.configMap), has(self.image)].filter(x, x).size() == 1",message="write exactly one of inline, configMap and image"
// +kubebuilder:validation:XValidation:rule="!has(self.pullSecrets) || has(self.image)",fieldPath=".pullSecrets",reason=FieldValueForbidden,message="pullSecrets are for an image: leave them out, or write image"
type RegoSource struct {
	// The source, of package gleaner.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	Inline *string `json:"inline,omitempty"`

	// A ConfigMap with the source.
	//
	// +optional
	ConfigMap *ConfigMapKeyReference `json:"configMap,omitempty"`

	// An image with the source, as registry/repository@sha256:… or
	// registry/repository:tag.
	//
	// +optional
	Image Image `json:"image,omitempty"`

	// Secrets of type kubernetes.io/dockerconfigjson to fetch the image with.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	PullSecrets []SecretReference `json:"pullSecrets,omitempty"`
}

// WasmSource is where a module as WebAssembly comes from.
//
// +kubebuilder:validation:XValidation:rule="[has(self.image), has(self.url), has(self.configMap)].filter(x, x).size() == 1",message="write exactly one of image, url and configMap"
// +kubebuilder:validation:XValidation:rule="!has(self.pullSecrets) || has(self.image)",fieldPath=".pullSecrets",reason=FieldValueForbidden,message="pullSecrets are for an image: leave them out, or write image"
type WasmSource struct {
	// An image with the module, as registry/repository@sha256:… or
	// registry/repository:tag.
	//
	// +optional
	Image Image `json:"image,omitempty"`

	// Secrets of type kubernetes.io/dockerconfigjson to fetch the image with.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	PullSecrets []SecretReference `json:"pullSecrets,omitempty"`

	// An address that begins with https://.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule=`isURL(self) && self.matches('^https://') && url(self).getHostname() != '' && !self.contains('#')`,message="write an address that begins with https://, such as https://example.com/module.wasm"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^[^/?#]*//[^/?#]*@')`,message="leave the user name and the password out: an address is no place for secrets"
	URL string `json:"url,omitempty"`

	// A ConfigMap with the module in its binaryData.
	//
	// +optional
	ConfigMap *ConfigMapKeyReference `json:"configMap,omitempty"`
}

// Image names an image in a registry, by its digest or a tag.
//
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:XValidation:rule=`self.matches('^([A-Za-z0-9][A-Za-z0-9.-]*|[[][0-9A-Fa-f:.]+[]])(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}(@sha256:[0-9a-f]{64})?|@sha256:[0-9a-f]{64})$')`,message="write registry/repository@sha256:… or registry/repository:tag, such as ghcr.io/example/policy:v1, without a scheme"
type Image string

// ConfigMapKeyReference names one entry of a ConfigMap.
type ConfigMapKeyReference struct {
	// The namespace of the ConfigMap. Resources of the cluster need it; those of a
	// namespace have it from their own.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// The name of the ConfigMap.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// The key of the entry, in data or binaryData.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// SecretReference names a Secret.
type SecretReference struct {
	// The namespace of the Secret. A ClusterPolicyModule needs it; a PolicyModule has
	// it from its own.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// The name of the Secret.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// Limits bound one call of a module. What is left out has the engine's default.
type Limits struct {
	// How much work it may do, in units of about one instruction. The same call uses
	// the same fuel everywhere. Default 250000000, at most 1000000000.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="self <= 1000000000",message="write at most 1000000000, or leave it out for the default of 250000000"
	Fuel *int64 `json:"fuel,omitempty"`

	// How long it may take. Default 2s, at most 30s.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms|us|µs|ns))+$') && duration(self) > duration('0s') && duration(self) <= duration('30s')`,message="write a duration above 0 and of at most 30s, such as 500ms or 2s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// How much memory it may have, from 64Ki to 512Mi; in a PolicyModule, to 64Mi.
	// Whole pages of 64Ki count. Default 64Mi.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('64Ki')) >= 0 && quantity(string(self)).compareTo(quantity('512Mi')) <= 0",message="write an amount of memory from 64Ki to 512Mi, such as 64Mi"
	Memory *resource.Quantity `json:"memory,omitempty"`
}
