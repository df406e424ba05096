package v1alpha1

// FinalizerGrants are what a finalizer's module may ask for.
type FinalizerGrants struct {
	// The objects that it may get and list.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Read []ReadGrant `json:"read,omitempty"`

	// The objects that it may write.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Write []WriteGrant `json:"write,omitempty"`

	// The HTTP requests that it may send.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	HTTP []HTTPGrant `json:"http,omitempty"`
}

// WriteVerb is a way to write an object.
//
// +kubebuilder:validation:Enum=create;delete;patch
type WriteVerb string

// WriteGrant allows to write objects: each of its groups with each of its
// resources, in each of its namespaces.
//
// +kubebuilder:validation:XValidation:rule="!has(self.namespaces) || !('*' in self.namespaces) || self.namespaces.size() == 1",fieldPath=".namespaces",message="* is all namespaces: write it alone"
// +kubebuilder:validation:XValidation:rule="!('gleaner.dev' in self.apiGroups)",fieldPath=".apiGroups",message="objects of the group gleaner.dev are not written by modules: leave it out"
type WriteGrant struct {
	// API groups, without versions; "" is the core group.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?|)$')`,message="write a group such as apps, without its version, or \"\" for the core group; what may be written is listed by name, without *"
	// +listType=atomic
	APIGroups []string `json:"apiGroups"`

	// Resources, as in the paths of the API server, such as persistentvolumeclaims.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$')`,message="write the plural in lower case and without a subresource, such as deployments; what may be written is listed by name, without *"
	// +listType=atomic
	Resources []string `json:"resources"`

	// How they may be written.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=3
	// +listType=set
	Verbs []WriteVerb `json:"verbs"`

	// Namespaces of the objects; * is all, and without it only objects outside of
	// namespaces can be written. For a ClusterFinalizer only: the module of a
	// Finalizer writes in the Finalizer's namespace.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	// +kubebuilder:validation:items:XValidation:rule=`self.matches('^([a-z0-9]([a-z0-9-]*[a-z0-9])?|[*])$')`,message="write the name of a namespace, or * for all"
	// +listType=atomic
	Namespaces []string `json:"namespaces,omitempty"`
}

// HTTPMethod is a method of HTTP.
//
// +kubebuilder:validation:Enum=GET;HEAD;POST;PUT;PATCH;DELETE;OPTIONS
type HTTPMethod string

// HTTPGrant allows HTTP requests, and says what the host adds to them.
//
// +kubebuilder:validation:XValidation:rule="[has(self.basicAuth), has(self.sigV4)].filter(x, x).size() <= 1",message="write at most one of basicAuth and sigV4"
// +kubebuilder:validation:XValidation:rule="!has(self.headersFrom) || !(has(self.basicAuth) || has(self.sigV4)) || self.headersFrom.all(h, h.header.lowerAscii() != 'authorization')",fieldPath=".headersFrom",message="basicAuth and sigV4 write the header Authorization: leave it out of headersFrom"
// +kubebuilder:validation:XValidation:rule="!has(self.headersFrom) || !has(self.sigV4) || self.headersFrom.all(h, !(h.header.lowerAscii() in ['x-amz-content-sha256', 'x-amz-date', 'x-amz-security-token']))",fieldPath=".headersFrom",message="sigV4 writes the headers X-Amz-Content-Sha256, X-Amz-Date and X-Amz-Security-Token: leave them out of headersFrom"
// +kubebuilder:validation:XValidation:rule="!has(self.ca) || self.url.startsWith('https://')",fieldPath=".ca",reason=FieldValueForbidden,message="certificates are for https: leave ca out, or write https:// in url"
type HTTPGrant struct {
	// The URL that is allowed, or with * at its end every URL that begins so. The
	// scheme, host and port are always exact; http in place of https is allowed only
	// where this says so. There is * nowhere else, and no query, user or fragment;
	// a request may have any query.
	//
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule=`self.matches('^https?://')`,message="write a URL that begins with https:// (or http://, for a server without TLS), such as https://s3.example.com/backups/*"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^https?://[^/?#]*@')`,message="leave the user name and the password out, and write basicAuth or headersFrom: a URL is no place for secrets"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^https?://') || self.matches('^https?://[^/?#]*@') || self.matches('^https?://([A-Za-z0-9-]+([.][A-Za-z0-9-]+)*|[[][0-9A-Fa-f:.]+[]])(:[0-9]*)?([/?#]|$)')`,message="write a host, without * in it: each host is listed by name, such as https://s3.example.com/*"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^https?://[^/?#@]*:[0-9]*([/?#]|$)') || self.matches('^https?://[^/?#@]*:([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])([/?#]|$)')`,message="write a port from 1 to 65535 after the colon, or leave the colon out"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('[?#]')`,message="leave the query and the fragment out: a request to an allowed path may have any query"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^https?://[^/?#]*/[^?#]*[*]') || self.matches('^https?://[^/?#]*/([^?#*]*/)?[*]([?#]|$)')`,message="write * only at the end, after a slash, for all that is below, such as https://s3.example.com/backups/*"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^https?://[^/?#]*/([^?#]*%|([^?#]*/)?[.][.]?([/;?#]|$)|([^?#]*/)?/)')`,message="write the path as it is meant, without . or .. as a step of it, without empty steps and without %; what needs them is below a path with /* at its end"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^https?://') || self.matches("^https?://[^/?#]*(/[A-Za-z0-9._~:@!$&'()*+,;=%/-]*)?([?#]|$)")`,message="write letters of ASCII, digits and ._~:@!$&'()*+,;=-/ in the path; what has others is below a path with /* at its end"
	URL string `json:"url"`

	// The methods that are allowed.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=7
	// +listType=set
	Methods []HTTPMethod `json:"methods"`

	// Headers whose values the host takes from Secrets. The module never sees them.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.all(h, self.exists_one(other, other.header.lowerAscii() == h.header.lowerAscii()))",message="write each header once: capitals make no difference"
	// +listType=map
	// +listMapKey=header
	HeadersFrom []HeaderFrom `json:"headersFrom,omitempty"`

	// User name and password, which the host adds, as in RFC 7617.
	//
	// +optional
	BasicAuth *BasicAuth `json:"basicAuth,omitempty"`

	// Has the host sign requests as services that are compatible with S3 want it (AWS
	// Signature Version 4).
	//
	// +optional
	SigV4 *SigV4 `json:"sigV4,omitempty"`

	// Certificates in PEM that the server's own is checked against, beside those of
	// the system.
	//
	// +optional
	CA *CASource `json:"ca,omitempty"`

	// Addresses that may be reached although they are loopback, private or of the
	// cluster, as CIDR, such as 10.96.0.17/32. Without it, public addresses only.
	// Those at which clouds serve credentials to machines are never reached.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=49
	// +kubebuilder:validation:items:XValidation:rule="isCIDR(self)",message="write a network with its length, such as 10.96.0.17/32 or fd00::/64"
	// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self) || cidr(self).prefixLength() >= 8",message="write a network no larger than /8: name the servers that are meant"
	// +kubebuilder:validation:items:XValidation:rule="!isCIDR(self) || cidr(self) == cidr(self).masked()",message="write the first address of the network before its length, such as 10.96.0.0/24, or one server with /32"
	// +listType=atomic
	Addresses []string `json:"addresses,omitempty"`
}

// HeaderFrom is a header whose value is in a Secret.
type HeaderFrom struct {
	// The name of the header.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=127
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[A-Za-z0-9-]+$')`,message="write the name of a header, in letters, digits and '-', such as Authorization"
	// +kubebuilder:validation:XValidation:rule=`!(self.lowerAscii() in ['connection', 'content-length', 'expect', 'host', 'keep-alive', 'proxy-authorization', 'proxy-connection', 'te', 'trailer', 'transfer-encoding', 'upgrade'])`,message="this header belongs to the connection, which is the host's: leave it out"
	Header string `json:"header"`

	// Where its value is, such as "Bearer …" with all that belongs to it.
	SecretKeyRef SecretKeyReference `json:"secretKeyRef"`
}

// BasicAuth is a user name and a password.
type BasicAuth struct {
	// Where the user name is.
	Username SecretKeyReference `json:"username"`

	// Where the password is.
	Password SecretKeyReference `json:"password"`
}

// SigV4 is how to sign requests.
type SigV4 struct {
	// The region that is signed for, such as us-east-1.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9-]+$')`,message="write a region, such as us-east-1"
	Region string `json:"region"`

	// The service that is signed for.
	//
	// +optional
	// +kubebuilder:default=s3
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9-]+$')`,message="write a service, such as s3"
	Service string `json:"service,omitempty"`

	// Where the access key's ID is.
	AccessKeyID SecretKeyReference `json:"accessKeyID"`

	// Where the secret access key is.
	SecretAccessKey SecretKeyReference `json:"secretAccessKey"`

	// Where the session token is, if there is one.
	//
	// +optional
	SessionToken *SecretKeyReference `json:"sessionToken,omitempty"`
}

// CASource is where certificates are.
//
// +kubebuilder:validation:XValidation:rule="has(self.configMapKeyRef) != has(self.secretKeyRef)",message="write exactly one of configMapKeyRef and secretKeyRef"
type CASource struct {
	// +optional
	ConfigMapKeyRef *ConfigMapKeyReference `json:"configMapKeyRef,omitempty"`

	// +optional
	SecretKeyRef *SecretKeyReference `json:"secretKeyRef,omitempty"`
}

// SecretKeyReference names one entry of a Secret.
type SecretKeyReference struct {
	// The namespace of the Secret. A ClusterFinalizer needs it; a Finalizer has it from
	// its own.
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

	// The key of the entry.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Key string `json:"key"`
}
