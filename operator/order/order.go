// Package order decides which dependents of an owner are deleted at a time, if a policy has
// them deleted in order, or with a grace period of its own.
//
// Such an owner keeps its hold until its dependents are gone. Policies are evaluated for each dependent as
// usual, but its owner counts as absent only once the wave of the dependent's kind has started. If that is
// unknown, the dependent is kept.
package order

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// Order is the order in which the dependents of one owner are deleted: wave by wave, and kinds
// that are in no wave after the last one. The zero Order has no waves.
type Order struct {
	Waves [][]schema.GroupKind

	// Kept are the kinds of dependents that are orphaned: their wave never starts.
	Kept []schema.GroupKind

	// GracePeriodSeconds is the grace period with which everything below the owner is deleted; nil
	// means that of each object.
	GracePeriodSeconds *int64
}

// Of returns the order of a verdict about dependents. It returns false if the verdict has none.
func Of(v hostabi.Verdict) (Order, bool) {
	if v.Decision != hostabi.DecisionForeground || len(v.Order) == 0 && v.GracePeriodSeconds == nil {
		return Order{}, false
	}
	o := Order{GracePeriodSeconds: v.GracePeriodSeconds}
	for _, wave := range v.Order {
		var kinds []schema.GroupKind
		for _, kind := range wave {
			kinds = append(kinds, schema.GroupKind{Group: kind.Group, Kind: kind.Kind})
		}
		o.Waves = append(o.Waves, kinds)
	}
	for _, exception := range v.Dependents {
		if exception.Decision != hostabi.DecisionDelete {
			o.Kept = append(o.Kept, schema.GroupKind{Group: exception.Group, Kind: exception.Kind})
		}
	}
	return o, true
}

// Kinds returns the kinds of all waves.
func (o Order) Kinds() []schema.GroupKind { return slices.Concat(o.Waves...) }

// WaveOf returns the index of the wave that has a kind: len(Waves) if none has, and more than any wave that starts if
// the kind is kept.
func (o Order) WaveOf(kind schema.GroupKind) int {
	if slices.Contains(o.Kept, kind) {
		return len(o.Waves) + 2
	}
	i := slices.IndexFunc(o.Waves, func(wave []schema.GroupKind) bool { return slices.Contains(wave, kind) })
	if i < 0 {
		return len(o.Waves)
	}
	return i
}

// Current returns the index of the first wave of which there are dependents: len(Waves) if only
// kinds in no wave are left, and one more if nothing is left, or only what is kept.
func (o Order) Current(dependents []graph.KindCount) int {
	current := len(o.Waves) + 1
	for _, d := range dependents {
		if d.Count > 0 {
			current = min(current, o.WaveOf(d.Kind))
		}
	}
	return current
}

// Describe describes a wave. If there is only a grace period, all dependents are one.
func (o Order) Describe(wave int) string {
	if len(o.Waves) == 0 {
		return "everything below it"
	}
	if wave >= len(o.Waves) {
		return "the last wave (kinds that are in no other wave)"
	}
	var kinds []string
	for _, kind := range o.Waves[wave] {
		kinds = append(kinds, kind.String())
	}
	return "wave " + strconv.Itoa(wave+1) + " of " + strconv.Itoa(len(o.Waves)) + " (" + strings.Join(kinds, ", ") + ")"
}
