package hostabi

// Decision is what a policy answers.
type Decision string

// The decisions. The empty Decision allows nothing.
const (
	// DecisionDelete deletes an object without owners.
	DecisionDelete Decision = "Delete"

	// DecisionOrphan keeps it, without its dangling references.
	DecisionOrphan Decision = "Orphan"

	// DecisionBackground, DecisionForeground and, above, DecisionOrphan say
	// what becomes of a deleted owner's dependents.
	DecisionBackground Decision = "Background"
	DecisionForeground Decision = "Foreground"

	// DecisionWait asks for the question to be put again.
	DecisionWait Decision = "Wait"

	// DecisionAbstain leaves the answer to the next policy, and at the end to
	// what Kubernetes does.
	DecisionAbstain Decision = "Abstain"
)

// Propagation is the propagation policy of a delete.
type Propagation string

// The propagation policies. The empty Propagation is none of them.
const (
	PropagationBackground Propagation = "Background"
	PropagationForeground Propagation = "Foreground"
	PropagationOrphan     Propagation = "Orphan"
)

// Verdict is a policy's answer. The zero Verdict allows nothing, and so keeps
// the object.
type Verdict struct {
	Decision           Decision    `json:"decision"`
	Propagation        Propagation `json:"propagation,omitempty"`        // with DecisionDelete
	GracePeriodSeconds *int64      `json:"gracePeriodSeconds,omitempty"` // with DecisionDelete
	Reason             string      `json:"reason,omitempty"`
}
