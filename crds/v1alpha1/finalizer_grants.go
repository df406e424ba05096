package v1alpha1

// FinalizerGrants are what a finalizer's module may request.
type FinalizerGrants struct {
	// Objects that the module may get and list.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Read []ReadGrant `json:"read,omitempty"`

	// Objects that the module may write.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Write []WriteGrant `json:"write,omitempty"`

	// HTTP requests that the module may send.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	HTTP []HTTPGrant `json:"http,omitempty"`
}

// WriteVerb is a verb by which an object is written.
//
// +kubebuilder:validation:Enum=create;delete;patch
type WriteVerb string

// WriteGrant allows writing objects of each of its groups and each of its
// resources, in each of its namespaces.
//
// +kubebuilder:validation:XValidation:rule="!has(self.namespaces) || !('*' in self.namespaces) || self.namespaces.size() == 1",fieldPath=".namespaces",message="* is all namespaces: write it alone"
// +kubebuilder:validation:XValidation:rule="!('gleaner.dev' in self.apiGroups)",fieldPath=".apiGroups",message="modules cannot write objects of the group gleaner.dev: remove it"
type WriteGrant struct {
	// API groups, without versions; "" is the core group.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?|)$')`,message="write a group such as apps, without its version, or \"\" for the core group; * is not allowed"
	// +listType=atomic
	APIGroups []string `json:"apiGroups"`

	// Resources, as in the paths of the API server, such as persistentvolumeclaims.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')`,message="write the plural in lower case and without a subresource, such as deployments; * is not allowed"
	// +listType=atomic
	Resources []string `json:"resources"`

	// Verbs that are allowed.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +listType=set
	Verbs []WriteVerb `json:"verbs"`

	// Namespaces of the objects; * is all. If not set, only cluster-scoped objects
	// can be written. For a ClusterFinalizer only: the module of a Finalizer writes
	// in the namespace of the Finalizer.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^([a-z0-9]([a-z0-9-]*[a-z0-9])?|[*])$')`,message="write the name of a namespace, or * for all"
	// +listType=atomic
	Namespaces []string `json:"namespaces,omitempty"`
}

// HTTPMethod is an HTTP method.
//
// +kubebuilder:validation:Enum=GET;HEAD;POST;PUT;PATCH;DELETE;OPTIONS
type HTTPMethod string

// HTTPGrant allows HTTP requests, and defines what the host adds to them.
//
// +kubebuilder:validation:XValidation:rule="[has(self.basicAuth), has(self.sigV4)].filter(x, x).size() <= 1",message="write at most one of basicAuth and sigV4"
// +kubebuilder:validation:XValidation:rule="!has(self.headersFrom) || !(has(self.basicAuth) || has(self.sigV4)) || self.headersFrom.all(h, h.header.lowerAscii() != 'authorization')",fieldPath=".headersFrom",message="basicAuth and sigV4 set the header Authorization: remove it from headersFrom"
// +kubebuilder:validation:XValidation:rule="!has(self.headersFrom) || !has(self.sigV4) || self.headersFrom.all(h, !(h.header.lowerAscii() in ['x-amz-content-sha256', 'x-amz-date', 'x-amz-security-token']))",fieldPath=".headersFrom",message="sigV4 sets the headers X-Amz-Content-Sha256, X-Amz-Date and X-Amz-Security-Token: remove them from headersFrom"
// +kubebuilder:validation:XValidation:rule="!has(self.ca) || self.url.startsWith('https://')",fieldPath=".ca",reason=FieldValueForbidden,message="ca needs https: remove ca, or write https:// in url"
type HTTPGrant struct {
	// The URL that is allowed. With * at the end, every URL with this prefix is
	// allowed. Scheme, host and port must match exactly; http is allowed only if
	// the URL begins with http://. The URL has no other *, no query, user or
	// fragment. A request may have any query.
	//
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule=`self.matches('^https?://')`,message="write a URL that begins with https:// (or http://, for a server without TLS), such as https://s3.example.com/backups/*"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^https?://[^/?#]*@')`,message="remove the user name and password, and set basicAuth or headersFrom: a URL must not contain credentials"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^https?://') || self.matches('^https?://[^/?#]*@') || self.matches('^https?://([A-Za-z0-9-]+([.][A-Za-z0-9-]+)*|[[][0-9A-Fa-f:.]+[]])(:[0-9]*)?([/?#]|$)')`,message="write a host without *, such as https://s3.example.com/*"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^https?://[^/?#@]*:[0-9]*([/?#]|$)') || self.matches('^https?://[^/?#@]*:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])([/?#]|$)')`,message="write a port from 1 to 65535 after the colon, or remove the colon"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('[?#]')`,message="remove the query and the fragment: a request to an allowed path may have any query"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^https?://[^/?#]*/[^?#]*[*]') || self.matches('^https?://[^/?#]*/([^?#*]*/)?[*]([?#]|$)')`,message="write * only at the end, after a slash, for all paths with this prefix, such as https://s3.example.com/backups/*"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^https?://[^/?#]*/([^?#]*%|([^?#]*/)?[.][.]?([/;?#]|$)|([^?#]*/)?/)')`,message="write the path without segments . or .., without empty segments and without %; to allow such paths, end the URL with /*"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^https?://') || self.matches("^https?://[^/?#]*(/[A-Za-z0-9._~:@!$&'()*+,;=%/-]*)?([?#]|$)")`,message="write only ASCII letters, digits and ._~:@!$&'()*+,;=-/ in the path; to allow other paths, end the URL with /*"
	URL string `json:"url"`

	// HTTP methods that are allowed.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=7
	// +listType=set
	Methods []HTTPMethod `json:"methods"`

	// Headers whose values are taken from Secrets. The module never receives the
	// values.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(h, self.exists_one(other, other.header.lowerAscii() == h.header.lowerAscii()))",message="write each header once: names are case-insensitive"
	// +listType=map
	// +listMapKey=header
	HeadersFrom []HeaderFrom `json:"headersFrom,omitempty"`

	// User name and password for basic authentication (RFC 7617), from Secrets.
	//
	// +optional
	BasicAuth *BasicAuth `json:"basicAuth,omitempty"`

	// Signs requests with AWS Signature Version 4, for S3-compatible services.
	//
	// +optional
	SigV4 *SigV4 `json:"sigV4,omitempty"`

	// CA certificates in PEM format that the server's certificate is verified
	// against, in addition to those of the system.
	//
	// +optional
	CA *CASource `json:"ca,omitempty"`

	// Loopback, private or cluster-internal addresses that may be reached, in CIDR
	// notation, such as 10.96.0.17/32. If not set, only public addresses may be
	// reached. The metadata addresses of cloud providers are never reached.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="write a network in CIDR notation, such as 10.96.0.17/32 or fd00::/64"
	// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self) || cidr(self).prefixLength() >= 8",message="write a network of at most /8"
	// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="write the first address of the network, such as 10.96.0.0/24, or a single address with /32"
	// +listType=atomic
	Addresses []string `json:"addresses,omitempty"`
}

// HeaderFrom is a header with a value from a Secret.
type HeaderFrom struct {
	// Name of the header.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=127
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[A-Za-z0-9-]+$')`,message="write the name of a header, in letters, digits and '-', such as Authorization"
	// +kubebuilder:validation:XValidation:rule=`!(self.lowerAscii() in ['connection', 'content-length', 'expect', 'host', 'keep-alive', 'proxy-authorization', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade'])`,message="this header is set by the host: remove it"
	Header string `json:"header"`

	// Reference to the whole value of the header, such as "Bearer …".
	SecretKeyRef SecretKeyReference `json:"secretKeyRef"`
}

// BasicAuth is a user name and a password.
type BasicAuth struct {
	// Reference to the user name.
	Username SecretKeyReference `json:"username"`

	// Reference to the password.
	Password SecretKeyReference `json:"password"`
}

// SigV4 configures AWS Signature Version 4.
type SigV4 struct {
	// The AWS region, such as us-east-1.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9-]+$')`,message="write a region, such as us-east-1"
	Region string `json:"region"`

	// The AWS service. Default s3.
	//
	// +optional
	// +kubebuilder:default=s3
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9-]+$')`,message="write a service, such as s3"
	Service string `json:"service,omitempty"`

	// Reference to the access key ID.
	AccessKeyID SecretKeyReference `json:"accessKeyID"`

	// Reference to the secret access key.
	SecretAccessKey SecretKeyReference `json:"secretAccessKey"`

	// Reference to the session token, if there is one.
	//
	// +optional
	SessionToken *SecretKeyReference `json:"sessionToken,omitempty"`
}

// CASource refers to CA certificates.
//
// +kubebuilder:validation:XValidation:rule="has(self.configMapKeyRef) != has(self.secretKeyRef)",message="write exactly one of configMapKeyRef and secretKeyRef"
type CASource struct {
	// +optional
	ConfigMapKeyRef *ConfigMapKeyReference `json:"configMapKeyRef,omitempty"`

	// +optional
	SecretKeyRef *SecretKeyReference `json:"secretKeyRef,omitempty"`
}

// SecretKeyReference refers to one key of a Secret.
type SecretKeyReference struct {
	// Namespace of the Secret. Required in a ClusterFinalizer; in a Finalizer, it
	// is always the namespace of the Finalizer.
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

	// Key of the Secret's data.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}
