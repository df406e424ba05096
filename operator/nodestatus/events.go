package nodestatus

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/gleaner-dev/gleaner/operator/nodeagent"
	"github.com/gleaner-dev/gleaner/operator/retain"
)

// Reasons of events about nodes.
const (
	EventRemoved       = "RemovedByRetention"  // a NodeRetentionPolicy removed images or containers from the node
	EventRemovalFailed = "RemovalFailed"       // images or containers could not be removed from the node
	EventTooLittle     = "FreeDiskSpaceFailed" // the file system that has the images stayed above highThresholdPercent; the kubelet's event has the same reason
)

// eventTypes are the types of the events.
var eventTypes = map[string]string{
	EventRemoved:       corev1.EventTypeNormal,
	EventRemovalFailed: corev1.EventTypeWarning,
	EventTooLittle:     corev1.EventTypeWarning,
}

// maxNamed is how many removals an event names.
const maxNamed = 5

// Event is an event about a node.
type Event struct{ Reason, Message string }

// Events returns what is to be announced about a round: one event for what each policy removed for one reason, at most one for
// what could not be removed, and one if too little was freed. The first shortage after the start raises none, since the node may
// just have started (P-20).
func Events(r nodeagent.Report, firstShortage bool) (list []Event) {
	type group struct {
		kind   nodeagent.Kind
		policy string
		reason retain.Reason
	}
	var order []group
	done := map[group][]nodeagent.Removal{}
	failed := 0
	var failure nodeagent.Removal
	for _, removal := range r.Removals {
		if removal.Err != nil {
			failed++
			failure = removal
			continue
		}
		g := group{removal.Kind, removal.Policy, removal.Reason}
		if done[g] == nil {
			order = append(order, g)
		}
		done[g] = append(done[g], removal)
	}
	for _, g := range order {
		list = append(list, Event{EventRemoved, fmt.Sprintf("NodeRetentionPolicy %s removed %s: %s", g.policy, named(g.kind, done[g]), why(g.reason))})
	}
	if failed > 0 {
		list = append(list, Event{EventRemovalFailed,
			bounded(fmt.Sprintf("could not remove %s from the node, the last one %s %s: %v", counted(failed, "item"), strings.ToLower(string(failure.Kind)), failure.Name, failure.Err), maxMessage)})
	}
	if r.Short != nil && !firstShortage {
		list = append(list, Event{EventTooLittle, tooLittle(*r.Short)})
	}
	return list
}

// named names some of what was removed.
func named(kind nodeagent.Kind, removals []nodeagent.Removal) string {
	var names []string
	size := int64(0)
	for at, r := range removals {
		size += r.Size
		if at < maxNamed {
			names = append(names, bounded(r.Name, maxMessage/maxNamed/2))
		}
	}
	text := counted(len(removals), strings.ToLower(string(kind)))
	if kind == nodeagent.Image {
		text += " of " + Bytes(size)
	}
	text += " (" + strings.Join(names, ", ")
	if more := len(removals) - len(names); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text + ")"
}

// counted returns a number with a noun.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
