// Package nodestatus says in the status of a NodeRetention what the agent of a node saw and did: it is the only writer of these
// objects, and of the events about their nodes.
package nodestatus

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gleaner-dev/gleaner/crds/v1alpha1"
	"github.com/gleaner-dev/gleaner/operator/nodeagent"
	"github.com/gleaner-dev/gleaner/operator/noderetention"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

// maxMessage bounds the message of a condition in bytes, and maxName the name of an image.
const (
	maxMessage = 1024
	maxName    = 512
)

// Totals are what an agent has removed since it started, and what it removed last, the newest first.
type Totals struct {
	Images, Containers int64
	Freed              int64 // bytes
	Recent             []nodeagent.Removal
	LastFailure        *nodeagent.Removal
}

// Add adds what a round did.
func (t *Totals) Add(r nodeagent.Report) {
	for _, removal := range r.Removals {
		if removal.Err != nil {
			t.LastFailure = &removal
			continue
		}
		if removal.Kind == nodeagent.Image {
			t.Images++
		} else {
			t.Containers++
		}
		t.Recent = slices.Insert(t.Recent, 0, removal)
	}
	t.Recent = t.Recent[:min(len(t.Recent), v1alpha1.MaxNodeRecentRemovals)]
	t.Freed += r.Freed
}

// Of returns the status after a report. What conditions say continues that of the previous status.
func Of(previous v1alpha1.NodeRetentionStatus, r nodeagent.Report, t Totals) v1alpha1.NodeRetentionStatus {
	s := v1alpha1.NodeRetentionStatus{Conditions: slices.Clone(previous.Conditions), LastEvaluation: timeOf(r.Time)}
	setConditions(&s.Conditions, r)
	s.Reason = problem(s.Conditions)
	if u := r.Usage; u != nil {
		s.ImageFilesystem = &v1alpha1.NodeFilesystem{CapacityBytes: u.Capacity, AvailableBytes: u.Available, UsedPercent: int32(nodeagent.UsedPercent(*u))} //nolint:gosec // at most 100
	}
	if i := r.Images; i != nil {
		s.Images = &v1alpha1.NodeImages{Total: int64(i.Total), InUse: int64(i.InUse), Due: due(i.Results), Removed: t.Images, FreedBytes: t.Freed, Kept: kept(i.Results)}
		s.NextRemovals = append(s.NextRemovals, nextRemovals(v1alpha1.NodeRemovalImage, i.Results)...)
	}
	if c := r.Containers; c != nil {
		s.Containers = &v1alpha1.NodeContainers{Exited: int64(c.Exited), Due: due(c.Results), Removed: t.Containers, Kept: kept(c.Results)}
		s.NextRemovals = append(s.NextRemovals, nextRemovals(v1alpha1.NodeRemovalContainer, c.Results)...)
	}
	slices.SortStableFunc(s.NextRemovals, func(a, b v1alpha1.NodeRemoval) int {
		return cmp.Compare(unix(a.Time), unix(b.Time)) // those that are due first
	})
	s.NextRemovals = s.NextRemovals[:min(len(s.NextRemovals), v1alpha1.MaxNodeNextRemovals)]
	for _, p := range r.Policies[:min(len(r.Policies), v1alpha1.MaxNodePolicies)] {
		s.Policies = append(s.Policies, v1alpha1.NodePolicy{Name: p.Name, Generation: p.Generation, Mode: modeOf(p)})
	}
	for _, removal := range t.Recent {
		one := item(v1alpha1.NodeRemovalType(removal.Kind), removal.Policy, removal.Item)
		one.Time = timeOf(removal.Time)
		s.RecentRemovals = append(s.RecentRemovals, one)
	}
	if f := t.LastFailure; f != nil {
		s.LastFailure = &v1alpha1.Failure{Time: *timeOf(f.Time), Message: bounded(fmt.Sprintf("%s %s: %v", f.Kind, f.Name, f.Err), v1alpha1.MaxFailureMessage)}
	}
	return s
}

func modeOf(p noderetention.Policy) v1alpha1.Mode {
	if p.Enforce {
		return v1alpha1.ModeEnforce
	}
	return v1alpha1.ModeMonitor
}

func timeOf(t time.Time) *metav1.Time {
	at := metav1.NewTime(t.Truncate(time.Second)) // as in JSON
	return &at
}

func unix(t *metav1.Time) int64 {
	if t == nil {
		return 0
	}
	return t.Unix()
}

// setConditions sets what is known. A condition about what the last round could not read is Unknown, or stays away.
func setConditions(conditions *[]metav1.Condition, r nodeagent.Report) {
	set := func(kind string, status metav1.ConditionStatus, reason, message string) {
		meta.SetStatusCondition(conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: bounded(message, maxMessage)})
	}
	switch {
	case r.RuntimeErr != nil:
		set(v1alpha1.ConditionRuntimeReady, metav1.ConditionFalse, v1alpha1.ReasonRuntimeFailed, "the container runtime can't be asked, so nothing is removed: "+r.RuntimeErr.Error())
	case r.RuntimeAnswered:
		set(v1alpha1.ConditionRuntimeReady, metav1.ConditionTrue, v1alpha1.ReasonRuntimeAnswers, "the container runtime answers")
	default:
		set(v1alpha1.ConditionRuntimeReady, metav1.ConditionUnknown, v1alpha1.ReasonNotAsked, "the container runtime has not been asked")
	}
	switch {
	case r.UsesErr != nil:
		set(v1alpha1.ConditionUsesKnown, metav1.ConditionFalse, v1alpha1.ReasonUsesUnreadable, "the Pods of the node can't be read, so no image is removed: "+r.UsesErr.Error())
	case r.UsesRead:
		set(v1alpha1.ConditionUsesKnown, metav1.ConditionTrue, v1alpha1.ReasonUsesRead, "the Pods and the containers of the node have been read")
	default:
		set(v1alpha1.ConditionUsesKnown, metav1.ConditionUnknown, v1alpha1.ReasonNotAsked, "the Pods and the containers of the node have not been read")
	}
	switch {
	case r.Short != nil:
		set(v1alpha1.ConditionUsageWithinLimits, metav1.ConditionFalse, v1alpha1.ReasonTooLittleFreed, tooLittle(*r.Short))
	case r.UsageErr != nil:
		set(v1alpha1.ConditionUsageWithinLimits, metav1.ConditionUnknown, v1alpha1.ReasonUsageUnknown, "the usage of the file system that has the images can't be read, so it removes nothing: "+r.UsageErr.Error())
	case r.Usage == nil || !r.RuntimeAnswered:
		set(v1alpha1.ConditionUsageWithinLimits, metav1.ConditionUnknown, v1alpha1.ReasonUsageUnknown, "the usage of the file system that has the images has not been compared with the policies")
	case r.HighPercent == 0:
		set(v1alpha1.ConditionUsageWithinLimits, metav1.ConditionTrue, v1alpha1.ReasonNoUsageLimit, "no policy that is enforced limits the usage")
	default:
		set(v1alpha1.ConditionUsageWithinLimits, metav1.ConditionTrue, v1alpha1.ReasonUsageLow, fmt.Sprintf("less than %d percent of the file system that has the images is used", r.HighPercent))
	}
}

// tooLittle says what is wrong when too little could be freed.
func tooLittle(s nodeagent.Shortage) string {
	return fmt.Sprintf("%d%% of the file system that has the images is used, and %d%% is allowed; removing unused images freed %s: "+
		"see what else uses the space, such as logs, volumes, and images in use", s.UsedPercent, s.HighPercent, Bytes(s.Freed))
}

// problem returns the reason of the first condition that is not True: they are in the order in which they are set.
func problem(conditions []metav1.Condition) string {
	for _, c := range conditions {
		if c.Status != metav1.ConditionTrue {
			return c.Reason
		}
	}
	return ""
}

// due returns how many are due. What several policies remove counts once.
func due(results []noderetention.Result) int64 {
	ids := map[string]bool{}
	for _, result := range results {
		for _, i := range result.Removals {
			ids[i.ID] = true
		}
	}
	return int64(len(ids))
}

// kept returns how many stay whatever the limits are, by the reason that the first policy gives.
func kept(results []noderetention.Result) map[string]int64 {
	reasons := map[string]retain.Reason{}
	for _, result := range slices.Backward(results) {
		for id, reason := range result.Kept {
			if reason != retain.WithinLimits {
				reasons[id] = reason
			}
		}
	}
	var counts map[string]int64
	for _, reason := range reasons {
		if counts == nil {
			counts = map[string]int64{}
		}
		counts[string(reason)]++
	}
	return counts
}

func nextRemovals(kind v1alpha1.NodeRemovalType, results []noderetention.Result) (list []v1alpha1.NodeRemoval) {
	const most = v1alpha1.MaxNodeNextRemovals
	for _, result := range results {
		for _, i := range result.Removals[:min(len(result.Removals), most)] {
			list = append(list, item(kind, result.Policy.Name, i))
		}
		for _, i := range result.Upcoming[:min(len(result.Upcoming), most)] {
			one := item(kind, result.Policy.Name, i)
			one.Reason, one.Time = "", timeOf(i.Due)
			list = append(list, one)
		}
	}
	return list
}

func item(kind v1alpha1.NodeRemovalType, policy string, i noderetention.Item) v1alpha1.NodeRemoval {
	return v1alpha1.NodeRemoval{Type: kind, Name: bounded(i.Name, maxName), ID: bounded(i.ID, maxName/2), SizeBytes: i.Size, Policy: policy, Reason: string(i.Reason)}
}

// bounded cuts a text that is larger than a number of bytes.
func bounded(text string, most int) string {
	if len(text) <= most {
		return text
	}
	const ellipsis = "…"
	return strings.ToValidUTF8(text[:most-len(ellipsis)], "") + ellipsis
}

// Bytes returns a number of bytes for people.
func Bytes(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d bytes", n)
	}
	value, exponent := float64(n)/unit, 0
	for value >= unit && exponent < 4 {
		value /= unit
		exponent++
	}
	return fmt.Sprintf("%.1f %ciB", value, "KMGTP"[exponent])
}

// why says for people why a limit removes something.
func why(r retain.Reason) string {
	switch r {
	case retain.NotUsed:
		return "not used for longer than maxAge"
	case retain.Pressure:
		return "the usage of the file system is above highThresholdPercent"
	case retain.Excess:
		return "above maxPerPodContainer"
	case retain.Surplus:
		return "above maxContainers"
	default:
		return string(r)
	}
}
