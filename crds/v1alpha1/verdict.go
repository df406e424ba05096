package v1alpha1

// The pattern of durations limits the digits of each number: CEL's duration
// overflows on larger ones, and its error would replace the message.

// Duration is a Go duration string, greater than 0 and at most 720h.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`self.matches('^[+]?(([0-9]{1,5}([.][0-9]{0,9})?|[.][0-9]{1,9})h|([0-9]{1,6}([.][0-9]{0,9})?|[.][0-9]{1,9})m|([0-9]{1,8}([.][0-9]{0,9})?|[.][0-9]{1,9})s|([0-9]{1,11}([.][0-9]{0,9})?|[.][0-9]{1,9})ms|([0-9]{1,14}([.][0-9]{0,9})?|[.][0-9]{1,9})(us|µs|μs)|([0-9]{1,17}([.][0-9]{0,9})?|[.][0-9]{1,9})ns)+$') && duration(self) > duration('0s') && duration(self) <= duration('720h')`,message="write a duration greater than 0 and at most 720h, such as 90s or 1h30m"
type Duration string

// FixedVerdicts has one verdict for each hook. For a hook without one, the next
// policy is evaluated.
//
// +kubebuilder:validation:XValidation:rule="has(self.collect) || has(self.propagate) || has(self.protect) || has(self.retain)",message="write a verdict for at least one of collect, propagate, protect and retain"
type FixedVerdicts struct {
	// The verdict for an object whose last owner is gone: Delete, Orphan (keep the
	// object), Wait or Abstain.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.decision in ['Delete', 'Orphan', 'Wait', 'Abstain']",fieldPath=".decision",message="write Delete, Orphan, Wait or Abstain: those are the decisions of collect"
	// +kubebuilder:validation:XValidation:rule="!has(self.propagation) || self.decision == 'Delete'",fieldPath=".propagation",reason=FieldValueForbidden,message="propagation is for Delete only: remove it, or set decision to Delete"
	// +kubebuilder:validation:XValidation:rule="!has(self.gracePeriodSeconds) || self.decision == 'Delete'",fieldPath=".gracePeriodSeconds",reason=FieldValueForbidden,message="gracePeriodSeconds is for Delete only: remove it, or set decision to Delete"
	// +kubebuilder:validation:XValidation:rule="!has(self.delay) || self.decision == 'Delete'",fieldPath=".delay",reason=FieldValueForbidden,message="delay is for Delete only: remove it, or set decision to Delete"
	// +kubebuilder:validation:XValidation:rule="!has(self.after) || self.decision == 'Wait'",fieldPath=".after",reason=FieldValueForbidden,message="after is for Wait only: remove it, or set decision to Wait"
	// +kubebuilder:validation:XValidation:rule="!has(self.dependents)",fieldPath=".dependents",reason=FieldValueForbidden,message="dependents is not for collect: remove it, or set it for propagate"
	// +kubebuilder:validation:XValidation:rule="!has(self.inheritGracePeriod)",fieldPath=".inheritGracePeriod",reason=FieldValueForbidden,message="inheritGracePeriod is not for collect: remove it, or set it for propagate"
	// +kubebuilder:validation:XValidation:rule="!has(self.order)",fieldPath=".order",reason=FieldValueForbidden,message="order is not for collect: remove it, or set it for propagate"
	Collect *FixedVerdict `json:"collect,omitempty"`

	// The verdict for the dependents of an object that is deleted: Background,
	// Foreground, Orphan (keep them), Wait or Abstain.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.decision in ['Background', 'Foreground', 'Orphan', 'Wait', 'Abstain']",fieldPath=".decision",message="write Background, Foreground, Orphan, Wait or Abstain: those are the decisions of propagate"
	// +kubebuilder:validation:XValidation:rule="!has(self.dependents) || self.decision in ['Background', 'Foreground', 'Orphan']",fieldPath=".dependents",reason=FieldValueForbidden,message="dependents is for Background, Foreground and Orphan only: remove it, or set decision to one of those"
	// +kubebuilder:validation:XValidation:rule="!has(self.after) || self.decision == 'Wait'",fieldPath=".after",reason=FieldValueForbidden,message="after is for Wait only: remove it, or set decision to Wait"
	// +kubebuilder:validation:XValidation:rule="!has(self.propagation)",fieldPath=".propagation",reason=FieldValueForbidden,message="propagation is not for propagate: write it as the decision"
	// +kubebuilder:validation:XValidation:rule="!has(self.gracePeriodSeconds) || self.decision == 'Foreground'",fieldPath=".gracePeriodSeconds",reason=FieldValueForbidden,message="gracePeriodSeconds is for Foreground only: remove it, or set decision to Foreground"
	// +kubebuilder:validation:XValidation:rule="!has(self.inheritGracePeriod) || self.decision == 'Foreground'",fieldPath=".inheritGracePeriod",reason=FieldValueForbidden,message="inheritGracePeriod is for Foreground only: remove it, or set decision to Foreground"
	// +kubebuilder:validation:XValidation:rule="!has(self.order) || self.decision == 'Foreground'",fieldPath=".order",reason=FieldValueForbidden,message="order is for Foreground only: remove it, or set decision to Foreground"
	// +kubebuilder:validation:XValidation:rule="!has(self.order) || self.order.all(w, w.all(k, self.order.map(v, v.filter(x, x.kind == k.kind && x.group == k.group).size()).sum() == 1))",fieldPath=".order",message="a kind is in the order twice, so that it would have to be deleted before itself: write each kind once"
	// +kubebuilder:validation:XValidation:rule="!has(self.order) || !has(self.dependents) || self.order.all(w, w.all(k, !self.dependents.exists(d, d.kind == k.kind && d.group == k.group)))",fieldPath=".dependents",message="a kind is in the order as well: remove it from order or from dependents"
	// +kubebuilder:validation:XValidation:rule="!has(self.delay)",fieldPath=".delay",reason=FieldValueForbidden,message="delay is not for propagate: remove it, or set it for collect"
	Propagate *FixedVerdict `json:"propagate,omitempty"`

	// The verdict for a user who requests the deletion of an object: Allow, Deny or
	// Abstain. For a ClusterGCPolicy only.
	//
	// +optional
	Protect *ProtectVerdict `json:"protect,omitempty"`

	// The verdict for an object that a retention policy removes: Remove, Keep or
	// Abstain.
	//
	// +optional
	Retain *RetainVerdict `json:"retain,omitempty"`
}

// RetainDecision is a decision about an object that a retention policy removes.
//
// +kubebuilder:validation:Enum=Remove;Keep;Abstain
type RetainDecision string

// The decisions.
const (
	RetainRemove  RetainDecision = "Remove"
	RetainKeep    RetainDecision = "Keep"
	RetainAbstain RetainDecision = "Abstain"
)

// RetainVerdict is a verdict for an object that a retention policy removes.
//
// +kubebuilder:validation:XValidation:rule="!has(self.after) || self.decision == 'Keep'",fieldPath=".after",reason=FieldValueForbidden,message="after is for Keep only: remove it, or set decision to Keep"
type RetainVerdict struct {
	// The decision.
	Decision RetainDecision `json:"decision"`

	// Time until the policy is evaluated again, such as 90s or 24h. Default: a minute
	// at first, then up to an hour. With Keep only.
	//
	// +optional
	After Duration `json:"after,omitempty"`

	// An explanation for people, in records and status.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="bytes(self).size() <= 1024",message="write at most 1024 bytes, in UTF-8"
	Reason string `json:"reason,omitempty"`
}

// ProtectDecision is a decision about a request to delete an object.
//
// +kubebuilder:validation:Enum=Allow;Deny;Abstain
type ProtectDecision string

// The decisions.
const (
	ProtectAllow   ProtectDecision = "Allow"
	ProtectDeny    ProtectDecision = "Deny"
	ProtectAbstain ProtectDecision = "Abstain"
)

// ProtectVerdict is a verdict for a user who requests a deletion.
//
// +kubebuilder:validation:XValidation:rule="self.decision != 'Deny' || has(self.reason) && self.reason.size() > 0",fieldPath=".reason",reason=FieldValueRequired,message="Deny requires a reason: write why the deletion is denied, and what users can do next"
type ProtectVerdict struct {
	// The decision.
	Decision ProtectDecision `json:"decision"`

	// The reason, as users see it when their request is denied. State what they can do
	// next. Required with Deny.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="bytes(self).size() <= 1024",message="write at most 1024 bytes, in UTF-8"
	Reason string `json:"reason,omitempty"`
}

// FixedVerdict is a verdict. Its JSON has the same fields as the verdict of a
// module.
type FixedVerdict struct {
	// The decision.
	//
	// +kubebuilder:validation:MaxLength=32
	Decision string `json:"decision"`

	// Propagation policy with which collect deletes the object. Default: the
	// default of the API server. With Delete only.
	//
	// +optional
	// +kubebuilder:validation:Enum=Background;Foreground;Orphan
	Propagation string `json:"propagation,omitempty"`

	// Grace period in seconds: with Delete of collect, that with which the object is
	// deleted; with Foreground of propagate, that with which everything below the object
	// is deleted.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`

	// Use the grace period of the request to delete the object, if that has one, in place
	// of gracePeriodSeconds. Requires Gleaner's webhooks. With Foreground only.
	//
	// +optional
	InheritGracePeriod bool `json:"inheritGracePeriod,omitempty"`

	// Minimum time that an object must have been without an owner before collect
	// deletes it, such as 90s or 1h30m. With Delete only.
	//
	// +optional
	Delay Duration `json:"delay,omitempty"`

	// Time until the next evaluation, such as 90s or 1h30m. Default 30s. With Wait
	// only.
	//
	// +optional
	After Duration `json:"after,omitempty"`

	// Exceptions to the decision of propagate, by kind. With Background, Foreground
	// and Orphan only.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=group
	// +listMapKey=kind
	Dependents []DependentDecision `json:"dependents,omitempty"`

	// Order in which propagate deletes the dependents: those of one wave are deleted when
	// none of the earlier waves is left, and those of kinds that are in no wave come last.
	// The object stays until all of them are gone. With Foreground only.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=8
	// +listType=atomic
	Order []Wave `json:"order,omitempty"`

	// An explanation for people, in records, status and messages of denied
	// requests.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="bytes(self).size() <= 1024",message="write at most 1024 bytes, in UTF-8"
	Reason string `json:"reason,omitempty"`
}

// Wave has the kinds of dependents that are deleted at the same time.
//
// +kubebuilder:validation:MinItems=1
// +kubebuilder:validation:MaxItems=8
// +listType=atomic
type Wave []GroupKind

// GroupKind is a kind, without its version.
type GroupKind struct {
	// API group of the kind, without its version; "" is the core group.
	//
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$')`,message="write a group such as apps, without its version, or remove it for the core group"
	Group string `json:"group,omitempty"`

	// Kind of the dependents, such as PersistentVolumeClaim.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[A-Za-z0-9]+$')`,message="write a kind, such as PersistentVolumeClaim"
	Kind string `json:"kind"`
}

// DependentDecision is the decision for the dependents of one kind.
type DependentDecision struct {
	// API group of the kind, without its version; "" is the core group.
	//
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$')`,message="write a group such as apps, without its version, or remove it for the core group"
	Group string `json:"group,omitempty"`

	// Kind of the dependents, such as ConfigMap.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[A-Za-z0-9]+$')`,message="write a kind, such as ConfigMap"
	Kind string `json:"kind"`

	// Delete, or Orphan to keep them.
	//
	// +kubebuilder:validation:Enum=Delete;Orphan
	Decision string `json:"decision"`
}
