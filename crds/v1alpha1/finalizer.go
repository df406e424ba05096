package v1alpha1

import (
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Removal is what becomes of a finalizer that nobody has finished.
//
// +kubebuilder:validation:Enum=Hold;Release
type Removal string

// What can become of a finalizer.
const (
	RemovalHold    Removal = "Hold"    // it stays on its objects, which stay with it
	RemovalRelease Removal = "Release" // it is taken off, whatever was left to be done
)

// FinalizerSpec is what Finalizer and ClusterFinalizer have in common.
//
// +kubebuilder:validation:XValidation:rule="!has(self.grants) || has(self.serviceAccount)",fieldPath=".serviceAccount",reason=FieldValueRequired,message="what grants allow is done as a service account, which also reads their secrets: write serviceAccount, or leave grants out"
// +kubebuilder:validation:XValidation:rule="self.resources.all(r, !('*' in r.apiGroups) && !('*' in r.resources))",fieldPath=".resources",message="a finalizer is for resources that somebody has named: write groups and resources in place of *"
// +kubebuilder:validation:XValidation:rule=`!has(self.attach) || !self.attach || self.resources.all(r, ![["", "pods"], ["", "nodes"], ["", "events"], ["", "endpoints"], ["", "namespaces"], ["coordination.k8s.io", "leases"], ["events.k8s.io", "events"], ["discovery.k8s.io", "endpointslices"], ["apiextensions.k8s.io", "customresourcedefinitions"], ["apiregistration.k8s.io", "apiservices"]].exists(x, x[0] in r.apiGroups && x[1] in r.resources))`,fieldPath=".resources",message="attach writes every object ahead of time, and so is not for pods, nodes, leases, events, endpoints, endpointslices, namespaces, customresourcedefinitions or apiservices: leave those resources out, or leave attach out and put the finalizer where it is wanted"
// +kubebuilder:validation:XValidation:rule="self.resources.all(r, !('admissionregistration.k8s.io' in r.apiGroups) && !('gleaner.dev' in r.apiGroups))",fieldPath=".resources",message="objects of the groups admissionregistration.k8s.io and gleaner.dev have no finalizers of this kind: leave those groups out"
type FinalizerSpec struct {
	// The entry of metadata.finalizers that is served, as domain/name. For a
	// ClusterFinalizer only: that of a Finalizer is always its namespace, then
	// .gleaner.dev/, then its name.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)+/[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$')`,message="write domain/name with a domain of your own, such as example.com/bucket"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^([^/]*[.])?(kubernetes[.]io|k8s[.]io|gleaner[.]dev)/')`,message="the domains kubernetes.io, k8s.io and gleaner.dev, and what is under them, belong to others: write a domain of your own, such as example.com/bucket"
	Finalizer string `json:"finalizer,omitempty"`

	// The resources whose objects it is for, as in admission rules, by name.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Resources []ResourceRule `json:"resources"`

	// The labels of the namespaces whose objects it is for; without it, those of all
	// namespaces, and objects outside of namespaces. For a ClusterFinalizer only.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="write In or NotIn with values, or Exists or DoesNotExist without, as the operator of each expression"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// The labels of the objects that it is for; without it, all.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="write In or NotIn with values, or Exists or DoesNotExist without, as the operator of each expression"
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`

	// Conditions that an object must meet, all of them, for it to be for it.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=name
	MatchConditions []MatchCondition `json:"matchConditions,omitempty"`

	// The module that is asked, by its hook finalize.
	Module ModuleReference `json:"module"`

	// An object of any shape, handed to the module with every request, and checked
	// by its validate hook.
	//
	// +optional
	// +kubebuilder:validation:Type=object
	// +kubebuilder:pruning:PreserveUnknownFields
	Settings *apiextensionsv1.JSON `json:"settings,omitempty"`

	// Monitor asks, reads and records, and changes nothing: objects that have the
	// finalizer keep it. Enforce does as the module decides.
	//
	// +optional
	// +kubebuilder:default=Monitor
	Mode Mode `json:"mode,omitempty"`

	// Puts the finalizer on the objects that it is for: in the write that creates
	// them, and on those that are there already. Without it, only objects are served
	// on which somebody has put it.
	//
	// +optional
	Attach bool `json:"attach,omitempty"`

	// Finalizers that must be gone from an object before this one is served.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MinLength=1
	// +kubebuilder:validation:items:MaxLength=317
	// +listType=set
	After []string `json:"after,omitempty"`

	// What the module may ask for. Nothing is allowed that is not listed.
	//
	// +optional
	Grants *FinalizerGrants `json:"grants,omitempty"`

	// The account that does what grants allow, with its own rights, and reads the
	// secrets that they name.
	//
	// +optional
	ServiceAccount *ServiceAccountReference `json:"serviceAccount,omitempty"`

	// How long an object may wait for this finalizer, from its deletionTimestamp;
	// without it, for ever. At most 8760h.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,8}([.][0-9]{1,9})?(h|m|s|ms))+$') && duration(self) >= duration('1s') && duration(self) <= duration('8760h')`,message="write a duration from 1s to 8760h, such as 10m or 48h"
	Deadline *metav1.Duration `json:"deadline,omitempty"`

	// What becomes of an object after the deadline: Hold reports it as stuck and
	// keeps trying, Release takes the finalizer off, whatever was left to be done.
	//
	// +optional
	// +kubebuilder:default=Hold
	OnDeadline Removal `json:"onDeadline,omitempty"`

	// What becomes of objects when this resource is deleted: Hold keeps it, and goes
	// on serving, until no object has the finalizer; Release takes the finalizer off
	// all of them, whatever was left to be done.
	//
	// +optional
	// +kubebuilder:default=Hold
	OnRemoval Removal `json:"onRemoval,omitempty"`

	// How long to wait after a failure, each time twice as long.
	//
	// +optional
	Retry *Retry `json:"retry,omitempty"`

	// Keeps in records what HTTP requests and responses, and Secrets, hold; without
	// it they hold its hash, and can't be replayed.
	//
	// +optional
	RecordBodies bool `json:"recordBodies,omitempty"`
}

// Retry is how long to wait after failures.
//
// +kubebuilder:validation:XValidation:rule="!has(self.initial) || !has(self.max) || duration(self.initial) <= duration(self.max)",fieldPath=".max",message="write at least what initial is"
type Retry struct {
	// After the first failure; without it, 1s. From 10ms to 1h.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,8}([.][0-9]{1,9})?(h|m|s|ms))+$') && duration(self) >= duration('10ms') && duration(self) <= duration('1h')`,message="write a duration from 10ms to 1h, such as 1s"
	Initial *metav1.Duration `json:"initial,omitempty"`

	// At most; without it, 5m. From 10ms to 24h.
	//
	// +optional
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,8}([.][0-9]{1,9})?(h|m|s|ms))+$') && duration(self) >= duration('10ms') && duration(self) <= duration('24h')`,message="write a duration from 10ms to 24h, such as 5m"
	Max *metav1.Duration `json:"max,omitempty"`
}

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
// +kubebuilder:validation:XValidation:rule="!has(self.ca) || self.url.startsWith('https://')",fieldPath=".ca",reason=FieldValueForbidden,message="certificates are for https: leave ca out, or write https:// in url"
type HTTPGrant struct {
	// The URL that is allowed, or with * at its end every URL that begins so. The
	// scheme, host and port are always exact; http in place of https is allowed only
	// where this says so. There is * nowhere else, and no query, user or fragment;
	// a request may have any query.
	//
	// +kubebuilder:validation:MaxLength=2048
	// +kubebuilder:validation:XValidation:rule=`self.matches('^https?://')`,message="write a URL that begins with https:// (or http://, for a server without TLS), such as https://s3.example.com/backups/*"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('^[^/?#]*//[^/?#]*@')`,message="leave the user name and the password out, and write basicAuth or headersFrom: a URL is no place for secrets"
	// +kubebuilder:validation:XValidation:rule=`self.matches('^https?://([A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?|[[][0-9A-Fa-f:.]+[]])(:[0-9]{1,5})?([/@]|$)') || self.matches('^[^/?#]*//[^/?#]*@')`,message="write a host, without * in it: each host is listed by name, such as https://s3.example.com/*"
	// +kubebuilder:validation:XValidation:rule=`!self.contains('?') && !self.contains('#') && !self.contains('\\') && !self.contains(' ')`,message="leave the query and the fragment out: a request to an allowed path may have any query"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('[*].') && (!self.endsWith('*') || self.endsWith('/*'))`,message="write * only at the end, after a slash, for all that is below, such as https://s3.example.com/backups/*"
	// +kubebuilder:validation:XValidation:rule=`!self.matches('/[.][.]?(/|$)') && !self.matches('^https?://[^/]*/.*//') && !self.matches('%')`,message="write the path as it is meant, without . or .. as a step of it, without empty steps and without %"
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

// MaxStuck bounds the objects that the status of a finalizer lists.
const MaxStuck = 20

// FinalizerStatus is what Finalizer and ClusterFinalizer have in common.
type FinalizerStatus struct {
	// Accepted, ModuleReady, Enforcing and Attached.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The generation of the finalizer that this status is about.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// The entry of metadata.finalizers that is served.
	//
	// +optional
	Finalizer string `json:"finalizer,omitempty"`

	// The SHA-256 digest of the module.
	//
	// +optional
	Digest string `json:"digest,omitempty"`

	// What the module runs on: Rego or Wasm.
	//
	// +optional
	Engine Engine `json:"engine,omitempty"`

	// The version of the documents that the module is asked with.
	//
	// +optional
	ABI string `json:"abi,omitempty"`

	// How many objects are being deleted and have the finalizer.
	//
	// +optional
	Pending int64 `json:"pending,omitempty"`

	// How many objects the finalizer was taken off since Gleaner started.
	//
	// +optional
	Released int64 `json:"released,omitempty"`

	// How many of the pending objects get no further: the module has failed, or
	// the deadline is over, or nobody can ask.
	//
	// +optional
	StuckCount int64 `json:"stuckCount,omitempty"`

	// Those of them that have been so for the longest time, at most 20.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=20
	// +listType=atomic
	Stuck []StuckObject `json:"stuck,omitempty"`
}

// StuckObject is an object that a finalizer keeps, and gets no further with.
type StuckObject struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`

	// +optional
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name"`
	UID       string `json:"uid"`

	// Why, in one word: Failed, DeadlineExceeded, Fault, NotReady, NotSelected or Monitor.
	Reason string `json:"reason"`

	// Why, for people.
	//
	// +optional
	Message string `json:"message,omitempty"`

	// Since when it has been so.
	Since metav1.Time `json:"since"`

	// When it is tried again of itself.
	//
	// +optional
	NextRetry *metav1.Time `json:"nextRetry,omitempty"`

	// When its deadline is, or was.
	//
	// +optional
	Deadline *metav1.Time `json:"deadline,omitempty"`
}
