package v1alpha1

// The pattern of durations bounds each number, since CEL's duration overflows on
// larger ones, and that error would take the place of the message.

// Duration is a length of time as a Go duration string, above 0 and at most
// 720h.
//
// +kubebuilder:validation:MaxLength=64
// +kubebuilder:validation:XValidation:rule=`self.matches('^[+]?(([0-9]{1,5}([.][0-9]{0,9})?|[.][0-9]{1,9})h|([0-9]{1,6}([.][0-9]{0,9})?|[.][0-9]{1,9})m|([0-9]{1,8}([.][0-9]{0,9})?|[.][0-9]{1,9})s|([0-9]{1,11}([.][0-9]{0,9})?|[.][0-9]{1,9})ms|([0-9]{1,14}([.][0-9]{0,9})?|[.][0-9]{1,9})(us|µs|μs)|([0-9]{1,17}([.][0-9]{0,9})?|[.][0-9]{1,9})ns)+$') && duration(self) > duration('0s') && duration(self) <= duration('720h')`,message="write a duration above 0 and of at most 720h, such as 90s or 1h30m"
type Duration string

// FixedVerdicts are one verdict for each hook that is answered. A hook without
// one is left to the next policy.
//
// +kubebuilder:validation:XValidation:rule="has(self.collect) || has(self.propagate)",message="write a verdict for collect, for propagate, or for both"
type FixedVerdicts struct {
	// The verdict on an object that has lost its last owner: Delete, Orphan (keep
	// it), Wait or Abstain.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.decision in ['Delete', 'Orphan', 'Wait', 'Abstain']",fieldPath=".decision",message="write Delete, Orphan, Wait or Abstain: those are the decisions of collect"
	// +kubebuilder:validation:XValidation:rule="!has(self.propagation) || self.decision == 'Delete'",fieldPath=".propagation",reason=FieldValueForbidden,message="propagation means something with Delete alone: leave it out, or decide Delete"
	// +kubebuilder:validation:XValidation:rule="!has(self.gracePeriodSeconds) || self.decision == 'Delete'",fieldPath=".gracePeriodSeconds",reason=FieldValueForbidden,message="gracePeriodSeconds means something with Delete alone: leave it out, or decide Delete"
	// +kubebuilder:validation:XValidation:rule="!has(self.delay) || self.decision == 'Delete'",fieldPath=".delay",reason=FieldValueForbidden,message="delay means something with Delete alone: leave it out, or decide Delete"
	// +kubebuilder:validation:XValidation:rule="!has(self.after) || self.decision == 'Wait'",fieldPath=".after",reason=FieldValueForbidden,message="after means something with Wait alone: leave it out, or decide Wait"
	// +kubebuilder:validation:XValidation:rule="!has(self.dependents)",fieldPath=".dependents",reason=FieldValueForbidden,message="dependents mean nothing in answer to collect: leave them out, or write them for propagate"
	Collect *FixedVerdict `json:"collect,omitempty"`

	// The verdict on the dependents of an object that is deleted: Background,
	// Foreground, Orphan (keep them), Wait or Abstain.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.decision in ['Background', 'Foreground', 'Orphan', 'Wait', 'Abstain']",fieldPath=".decision",message="write Background, Foreground, Orphan, Wait or Abstain: those are the decisions of propagate"
	// +kubebuilder:validation:XValidation:rule="!has(self.dependents) || self.decision in ['Background', 'Foreground', 'Orphan']",fieldPath=".dependents",reason=FieldValueForbidden,message="dependents mean something with Background, Foreground and Orphan alone: leave them out, or decide one of those"
	// +kubebuilder:validation:XValidation:rule="!has(self.after) || self.decision == 'Wait'",fieldPath=".after",reason=FieldValueForbidden,message="after means something with Wait alone: leave it out, or decide Wait"
	// +kubebuilder:validation:XValidation:rule="!has(self.propagation)",fieldPath=".propagation",reason=FieldValueForbidden,message="propagation means nothing in answer to propagate: write it as the decision"
	// +kubebuilder:validation:XValidation:rule="!has(self.gracePeriodSeconds)",fieldPath=".gracePeriodSeconds",reason=FieldValueForbidden,message="gracePeriodSeconds means nothing in answer to propagate: leave it out, or write it for collect"
	// +kubebuilder:validation:XValidation:rule="!has(self.delay)",fieldPath=".delay",reason=FieldValueForbidden,message="delay means nothing in answer to propagate: leave it out, or write it for collect"
	Propagate *FixedVerdict `json:"propagate,omitempty"`
}

// FixedVerdict is a verdict. As JSON it is one that a module could have given.
type FixedVerdict struct {
	// What to do.
	//
	// +kubebuilder:validation:MaxLength=32
	Decision string `json:"decision"`

	// What becomes of the dependents of an object that collect deletes; without it,
	// what the API server chooses. With Delete only.
	//
	// +optional
	// +kubebuilder:validation:Enum=Background;Foreground;Orphan
	Propagation string `json:"propagation,omitempty"`

	// The seconds that an object which collect deletes is given to end. With Delete
	// only.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=2147483647
	GracePeriodSeconds *int64 `json:"gracePeriodSeconds,omitempty"`

	// How long an object must have been without an owner before collect deletes it,
	// such as 90s or 1h30m. With Delete only.
	//
	// +optional
	Delay Duration `json:"delay,omitempty"`

	// When to ask again, such as 90s or 1h30m; without it, in 30s. With Wait only.
	//
	// +optional
	After Duration `json:"after,omitempty"`

	// Exceptions, by kind, to what propagate decides. With Background, Foreground
	// and Orphan only.
	//
	// +optional
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=64
	// +listType=map
	// +listMapKey=group
	// +listMapKey=kind
	Dependents []DependentDecision `json:"dependents,omitempty"`

	// For people: in records, status and refusals.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:XValidation:rule="bytes(self).size() <= 1024",message="write at most 1024 bytes, in UTF-8"
	Reason string `json:"reason,omitempty"`
}

// DependentDecision says what becomes of the dependents of one kind.
type DependentDecision struct {
	// The API group of the kind, without its version; "" is the core group.
	//
	// +optional
	// +kubebuilder:default=""
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([a-z0-9]([a-z0-9.-]*[a-z0-9])?)?$')`,message="write a group such as apps, without its version, or leave it out for the core group"
	Group string `json:"group,omitempty"`

	// The kind, such as ConfigMap.
	//
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule=`self.matches('^[A-Za-z0-9]+$')`,message="write a kind, such as ConfigMap"
	Kind string `json:"kind"`

	// Delete, or Orphan to keep them.
	//
	// +kubebuilder:validation:Enum=Delete;Orphan
	Decision string `json:"decision"`
}
