package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// ConditionExhausted (deletion budgets) reports whether deletions wait for the budget.
const ConditionExhausted = "Exhausted"

// Reasons of the condition Exhausted.
const (
	ReasonAvailable = "Available" // False: deletions continue
	ReasonWaiting   = "Waiting"   // True: deletions wait until earlier ones have left the window
	ReasonTripped   = "Tripped"   // True: deletions wait until a person resumes
)

// ReasonCountFailed is a reason of the condition Accepted: a percentage can't be applied, since the objects can't be counted.
const ReasonCountFailed = "CountFailed"

// ResumeAnnotation resumes an exhausted DeletionBudget or ClusterDeletionBudget. Its value is the number in
// status.exhaustions.
const ResumeAnnotation = "gleaner.dev/resume"

// OnExhausted says what happens after a budget is exhausted.
//
// +kubebuilder:validation:Enum=Wait;Trip
type OnExhausted string

// What happens after a budget is exhausted. An unknown value is treated as Trip.
const (
	OnExhaustedWait OnExhausted = "Wait" // deletions continue as earlier ones leave the window
	OnExhaustedTrip OnExhausted = "Trip" // nothing is deleted until a person resumes
)

// DeletionBudgetSpec is the spec of DeletionBudget and ClusterDeletionBudget.
type DeletionBudgetSpec struct {
	// Resources that the budget applies to, as in admission rules.
	//
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=32
	// +listType=atomic
	Resources []ResourceRule `json:"resources"`

	// Labels of the namespaces that the budget applies to. If not set, it applies to
	// all namespaces and to cluster-scoped objects. For a ClusterDeletionBudget only.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="write In or NotIn with values, or Exists or DoesNotExist without, as the operator of each expression"
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`

	// Labels of the objects that the budget applies to. If not set, it applies to all
	// objects.
	//
	// +optional
	// +kubebuilder:validation:XValidation:rule="!has(self.matchExpressions) || self.matchExpressions.all(e, e.operator in ['In', 'NotIn'] ? has(e.values) && e.values.size() > 0 : e.operator in ['Exists', 'DoesNotExist'] && (!has(e.values) || e.values.size() == 0))",message="write In or NotIn with values, or Exists or DoesNotExist without, as the operator of each expression"
	ObjectSelector *metav1.LabelSelector `json:"objectSelector,omitempty"`

	// Maximum number of deletions in any window: a number, or a percentage of the
	// selected objects, such as 10%, rounded down and at least 1. The objects are
	// counted before the first deletion of a window. 0 means that Gleaner deletes none
	// of them.
	//
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:MaxLength=10
	// +kubebuilder:validation:XValidation:rule="type(self) == int ? self >= 0 && self <= 1000000 : string(self).matches('^(100|[1-9][0-9]?)%$')",message="write a number from 0 to 1000000, such as 100, or a percentage from 1% to 100%, such as \"10%\""
	MaxDeletions intstr.IntOrString `json:"maxDeletions"`

	// The length of the window, from 10s to 168h.
	//
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:XValidation:rule=`self.matches('^([0-9]{1,5}([.][0-9]{1,9})?(h|m|s|ms))+$') && duration(self) >= duration('10s') && duration(self) <= duration('168h')`,message="write a duration from 10s to 168h, such as 1h"
	Window metav1.Duration `json:"window"`

	// What happens after the budget is exhausted. Wait: deletions continue as earlier
	// ones leave the window. Trip: nothing more is deleted until a person resumes, with
	// gleaner resume --budget. Default Wait.
	//
	// +optional
	// +kubebuilder:default=Wait
	OnExhausted OnExhausted `json:"onExhausted,omitempty"`
}

// DeletionBudgetStatus is the status of DeletionBudget and ClusterDeletionBudget. Gleaner counts in it:
// if it is changed by others, the budget may allow more or fewer deletions.
type DeletionBudgetStatus struct {
	// Conditions of the budget: Accepted and Exhausted.
	//
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`

	// The generation of the spec that this status describes.
	//
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// Number of deletions that are allowed in a window.
	//
	// +optional
	Allowed int32 `json:"allowed,omitempty"`

	// Number of deletions in the current window, with those that are reserved.
	//
	// +optional
	Used int32 `json:"used,omitempty"`

	// Number of deletions that wait for the budget. It is updated every few seconds.
	//
	// +optional
	Waiting int32 `json:"waiting,omitempty"`

	// How often the budget was exhausted.
	//
	// +optional
	Exhaustions int64 `json:"exhaustions,omitempty"`

	// The objects that a percentage refers to.
	//
	// +optional
	Matching *MatchingObjects `json:"matching,omitempty"`

	// Deletions that are reserved: about to be sent, or sent with an unknown result.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Reservations []DeletionReservation `json:"reservations,omitempty"`

	// Deletions in the current window.
	//
	// +optional
	// +kubebuilder:validation:MaxItems=64
	// +listType=atomic
	Deletions []DeletionCount `json:"deletions,omitempty"`
}

// MatchingObjects is a number of objects at one time.
type MatchingObjects struct {
	// The number of objects.
	Count int64 `json:"count"`

	// When they were counted.
	Time metav1.MicroTime `json:"time"`

	// The generation of the spec that they were counted for.
	//
	// +optional
	Generation int64 `json:"generation,omitempty"`
}

// DeletionReservation is a number of deletions that one replica has reserved.
type DeletionReservation struct {
	// Identifies the reservation.
	//
	// +kubebuilder:validation:MaxLength=128
	ID string `json:"id"`

	// When they were reserved.
	Time metav1.MicroTime `json:"time"`

	// The number of deletions.
	Count int32 `json:"count"`
}

// DeletionCount is a number of deletions.
type DeletionCount struct {
	// The time of the first one. The others followed within a fortieth of the window.
	Time metav1.MicroTime `json:"time"`

	// The number of deletions.
	Count int32 `json:"count"`
}

// DeletionBudget limits how many objects Gleaner deletes in its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=deletionbudgets,singular=deletionbudget,shortName=delbudget,categories=gleaner
// +kubebuilder:printcolumn:name="Max",type=string,JSONPath=`.spec.maxDeletions`
// +kubebuilder:printcolumn:name="Window",type=string,JSONPath=`.spec.window`
// +kubebuilder:printcolumn:name="On-Exhausted",type=string,JSONPath=`.spec.onExhausted`
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.used`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.waiting`
// +kubebuilder:printcolumn:name="Exhausted",type=string,JSONPath=`.status.conditions[?(@.type=="Exhausted")].status`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DeletionBudget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired budget.
	//
	// +kubebuilder:validation:XValidation:rule="!has(self.namespaceSelector)",fieldPath=".namespaceSelector",reason=FieldValueForbidden,message="a DeletionBudget limits deletions in its own namespace only: remove namespaceSelector, or create a ClusterDeletionBudget"
	Spec DeletionBudgetSpec `json:"spec"`

	// The observed state of the budget.
	//
	// +optional
	Status DeletionBudgetStatus `json:"status,omitempty"`
}

// DeletionBudgetList is a list of DeletionBudgets.
//
// +kubebuilder:object:root=true
type DeletionBudgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []DeletionBudget `json:"items"`
}

// ClusterDeletionBudget limits how many objects Gleaner deletes in any namespace, and how many
// cluster-scoped objects.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=clusterdeletionbudgets,singular=clusterdeletionbudget,scope=Cluster,shortName=cdelbudget,categories=gleaner
// +kubebuilder:printcolumn:name="Max",type=string,JSONPath=`.spec.maxDeletions`
// +kubebuilder:printcolumn:name="Window",type=string,JSONPath=`.spec.window`
// +kubebuilder:printcolumn:name="On-Exhausted",type=string,JSONPath=`.spec.onExhausted`
// +kubebuilder:printcolumn:name="Used",type=integer,JSONPath=`.status.used`
// +kubebuilder:printcolumn:name="Waiting",type=integer,JSONPath=`.status.waiting`
// +kubebuilder:printcolumn:name="Exhausted",type=string,JSONPath=`.status.conditions[?(@.type=="Exhausted")].status`
// +kubebuilder:printcolumn:name="Accepted",type=string,JSONPath=`.status.conditions[?(@.type=="Accepted")].status`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ClusterDeletionBudget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// The desired budget.
	Spec DeletionBudgetSpec `json:"spec"`

	// The observed state of the budget.
	//
	// +optional
	Status DeletionBudgetStatus `json:"status,omitempty"`
}

// ClusterDeletionBudgetList is a list of ClusterDeletionBudgets.
//
// +kubebuilder:object:root=true
type ClusterDeletionBudgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []ClusterDeletionBudget `json:"items"`
}
