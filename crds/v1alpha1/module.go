package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// PolicyModuleSpec is the spec of PolicyModule and ClusterPolicyModule.
//
// +kubebuilder:validation:XValidation:rule="has(self.rego) != has(self.wasm)",message="write exactly one of rego and wasm"
// +kubebuilder:validation:XValidation:rule="!has(self.verify) || (has(self.rego) && has(self.rego.image)) || (has(self.wasm) && has(self.wasm.image))",fieldPath=".verify",reason=FieldValueForbidden,message="only images can be signed: remove verify, or set image"
type PolicyModuleSpec struct {
	// A module in Rego. Mutually exclusive with wasm.
	//
	// +optional
	Rego *RegoSource `json:"rego,omitempty"`

	// A WebAssembly module. Mutually exclusive with rego.
	//
	// +optional
	Wasm *WasmSource `json:"wasm,omitempty"`

	// The SHA-256 digest of the module's content, decompressed. Content with
	// another digest is rejected. Policies and finalizers pin a module by their
	// module.digest.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=128
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[0-9a-f]{64}$')`,message="write 64 hexadecimal digits in lower case, as sha256sum prints them, without a prefix"
	SHA256 string `json:"sha256,omitempty"`

	// The signers that are trusted to sign the image of the module. An image without a
	// valid signature by one of them is not used.
	//
	// +optional
	Verify *SignatureVerification `json:"verify,omitempty"`

	// Resource limits of one call of the module.
	//
	// +optional
	Limits *Limits `json:"limits,omitempty"`
}

// SignatureVerification is who has to sign an image. Signatures are sigstore bundles that are
// attached to the image, as cosign sign and gleaner module push --sign-key make them. They are
// verified without a connection to sigstore.
type SignatureVerification struct {
	// Trusted signers. A signature by any one of them is sufficient.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Signers []Signer `json:"signers"`
}

// Signer is a public key, or an identity that a certificate authority certifies.
//
// +kubebuilder:validation:XValidation:rule="has(self.publicKey) != has(self.identity)",message="write exactly one of publicKey and identity"
type Signer struct {
	// A public key in PEM, such as the content of cosign.pub.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule=`self.contains('-----BEGIN PUBLIC KEY-----')`,message="write a public key in PEM, such as the content of cosign.pub, which begins with -----BEGIN PUBLIC KEY-----"
	PublicKey string `json:"publicKey,omitempty"`

	// The identity of a keyless signature. It requires that the operator has a trusted
	// root: see gleaner run --trusted-root.
	//
	// +optional
	Identity *SignerIdentity `json:"identity,omitempty"`
}

// SignerIdentity is the identity in the certificate of a keyless signature.
//
// +kubebuilder:validation:XValidation:rule="has(self.subject) != has(self.subjectRegExp)",message="write exactly one of subject and subjectRegExp"
type SignerIdentity struct {
	// URL of the OpenID Connect provider, such as
	// https://token.actions.githubusercontent.com.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Issuer string `json:"issuer"`

	// The email address or URI, such as that of a workflow.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	Subject string `json:"subject,omitempty"`

	// A regular expression in RE2 syntax that matches the whole email address or URI.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=1024
	SubjectRegExp string `json:"subjectRegExp,omitempty"`
}

// RegoSource is the source of a Rego module.
//
// +kubebuilder:validation:XValidation:rule="[has(self.inline), has(self.configMap), has(self.image)].filter(x, x).size() == 1",message="write exactly one of inline, configMap and image"
// +kubebuilder:validation:XValidation:rule="!has(self.pullSecrets) || has(self.image)",fieldPath=".pullSecrets",reason=FieldValueForbidden,message="pullSecrets need an image: remove pullSecrets, or set image"
type RegoSource struct {
	// The Rego source text, of package gleaner.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=262144
	Inline *string `json:"inline,omitempty"`

	// A ConfigMap that contains the source.
	//
	// +optional
	ConfigMap *ConfigMapKeyReference `json:"configMap,omitempty"`

	// An OCI image that contains the source, as registry/repository@sha256:… or
	// registry/repository:tag.
	//
	// +optional
	Image Image `json:"image,omitempty"`

	// Secrets of type kubernetes.io/dockerconfigjson for pulling the image.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	PullSecrets []SecretReference `json:"pullSecrets,omitempty"`
}

// WasmSource is the source of a WebAssembly module.
//
// +kubebuilder:validation:XValidation:rule="[has(self.image), has(self.url), has(self.configMap)].filter(x, x).size() == 1",message="write exactly one of image, url and configMap"
// +kubebuilder:validation:XValidation:rule="!has(self.pullSecrets) || has(self.image)",fieldPath=".pullSecrets",reason=FieldValueForbidden,message="pullSecrets need an image: remove pullSecrets, or set image"
type WasmSource struct {
	// An OCI image that contains the module, as registry/repository@sha256:… or
	// registry/repository:tag.
	//
	// +optional
	Image Image `json:"image,omitempty"`

	// Secrets of type kubernetes.io/dockerconfigjson for pulling the image.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	PullSecrets []SecretReference `json:"pullSecrets,omitempty"`

	// The URL of the module. It begins with https://.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule=`isURL(self) && self.matches('^https://') && url(self).getHostname() != '' && !self.contains('#')`,message="write a URL that begins with https://, such as https://example.com/module.wasm"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^[^/?#]*//[^/?#]*@')`,message="remove the user name and password: a URL must not contain credentials"
	URL string `json:"url,omitempty"`

	// A ConfigMap that contains the module in its binaryData.
	//
	// +optional
	ConfigMap *ConfigMapKeyReference `json:"configMap,omitempty"`
}

// Image is a reference to an OCI image, by digest or tag.
//
// +kubebuilder:validation:MaxLength=512
// +kubebuilder:validation:XValidation:rule=`self.matches('^([A-Za-z0-9][A-Za-z0-9.-]*|[[][0-9A-Fa-f:.]+[]])(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)+(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}(@sha256:[0-9a-f]{64})?|@sha256:[0-9a-f]{64})$')`,message="write registry/repository@sha256:… or registry/repository:tag, such as ghcr.io/example/policy:v1, without a scheme"
type Image string

// ConfigMapKeyReference refers to one key of a ConfigMap.
type ConfigMapKeyReference struct {
	// Namespace of the ConfigMap. Required in cluster-scoped resources; in a
	// namespaced resource, it is always the namespace of the resource.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// Name of the ConfigMap.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`

	// Key of the ConfigMap's data or binaryData.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}

// SecretReference refers to a Secret.
type SecretReference struct {
	// Namespace of the Secret. Required in a ClusterPolicyModule; in a
	// PolicyModule, it is always the namespace of the PolicyModule.
	//
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace,omitempty"`

	// Name of the Secret.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// Limits bound one call of a module. Fields that are not set have the default of
// the engine.
type Limits struct {
	// Maximum fuel of one call, in units of about one instruction. The same call
	// uses the same fuel on every machine. Default 250000000, at most 1000000000.
	//
	// +optional
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:XValidation:rule="self <= 1000000000",message="write at most 1000000000, or remove it for the default of 250000000"
	Fuel *int64 `json:"fuel,omitempty"`

	// Maximum duration of one call. Default 2s, at most 30s.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms|us|µs|ns))+$') && duration(self) > duration('0s') && duration(self) <= duration('30s')`,message="write a duration greater than 0 and at most 30s, such as 500ms or 2s"
	Timeout *metav1.Duration `json:"timeout,omitempty"`

	// Maximum memory of the module, from 64Ki to 512Mi, and to 64Mi in a
	// PolicyModule. It is counted in whole pages of 64Ki. Default 64Mi.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="isQuantity(string(self)) && quantity(string(self)).compareTo(quantity('64Ki')) >= 0 && quantity(string(self)).compareTo(quantity('512Mi')) <= 0",message="write an amount of memory from 64Ki to 512Mi, such as 64Mi"
	Memory *resource.Quantity `json:"memory,omitempty"`
}
