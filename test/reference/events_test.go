package reference

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// eventFuncs are the functions that emit an event. Their arguments are the object, type,
// reason and message.
var eventFuncs = []string{"Event", "Eventf", "RecordEvent"}

// dynamicReasons are the files that emit events with a reason that is not a constant, and
// where the reason comes from.
var dynamicReasons = map[string]string{
	"operator/run/events.go":        "", // forwards events
	"operator/run/run.go":           "", // forwards events
	"operator/run/finalize.go":      "", // forwards events
	"operator/recorder/announce.go": "", // those of eventTypes and finalizerEventTypes
	"operator/nodestatus/writer.go": "", // those of eventTypes
	"operator/intents/intents.go":   "the reason in an `event` intent of a module, about the object; the message begins with the name of the module's resource",
	"operator/policystatus/events.go": "the [reason of a condition](conditions.md), about the resource that has it, when `Accepted`, `ModuleReady`, `Fetched`, `Compiled` or `Archiving` changes: " +
		"Warning if it is not true, otherwise Normal",
}

type event struct{ reason, kind, about, description string }

const eventsPreamble = `# Events

The Kubernetes events that Gleaner emits, shown by ` + "`kubectl events --for KIND/NAME`" + `. There are no events for plain deletes, since the object is gone; these are in the
[records](../records.md) and the log. This page is generated from the code by ` + "`make generate`" + `.

| reason | type | about | |
|---|---|---|---|
`

func describeEvents(t *testing.T, code source) string {
	list, others := code.events(t)
	if len(list) == 0 {
		t.Error("found no events")
	}
	var b strings.Builder
	b.WriteString(eventsPreamble)
	for _, e := range list {
		b.WriteString(row("`"+e.reason+"`", e.kind, e.about, plain(e.description)))
	}
	b.WriteString("\nEvents with other reasons:\n\n")
	for _, other := range others {
		b.WriteString("- " + other + ".\n")
	}
	b.WriteString("\n## Reasons of decisions\n\nThey appear in records, in the log, and in the label `reason` of `gleaner_decisions_total`.\n\n| reason | |\n|---|---|\n")
	for _, c := range code.constsOf("Reason") {
		if c.value != "" && (c.pkg == "decide" || c.pkg == "finalizers") {
			b.WriteString(row("`"+c.value+"`", plain(sentence(c.comment))))
		}
	}
	return b.String()
}

// events finds the events with a constant reason, in calls and in tables of reasons, and
// the descriptions of others.
func (s *source) events(t *testing.T) (list []event, others []string) {
	t.Helper()
	forwards := map[string]bool{}
	add := func(f file, reason, kind, message ast.Expr) bool {
		text, ok := s.text(f, reason)
		if !ok {
			return false
		}
		c, _ := s.constant(f, reason)
		about := "the object"
		if strings.HasPrefix(f.name, "operator/policystatus/") || strings.HasPrefix(f.name, "operator/budgeter/") {
			about = "the resource"
		}
		if strings.HasPrefix(f.name, "operator/nodestatus/") {
			about = "the Node"
		}
		meaning := c.comment
		if meaning == "" {
			meaning = eventDescriptions[text]
		}
		if meaning == "" && message != nil {
			meaning = s.leadingText(f, message)
		}
		if meaning == "" {
			t.Errorf("%s: the event %s has no description: comment its constant, or add it to meanings", f.name, text)
		}
		list = append(list, event{text, strings.TrimPrefix(selector(kind), "corev1.EventType"), about, sentence(meaning)})
		return true
	}
	s.visitNodes(func(f file, n ast.Node) {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if strings.HasPrefix(selector(n.Value), "corev1.EventType") && !add(f, n.Key, n.Value, nil) {
				t.Errorf("%s: the reason of an event is not a constant: use one", f.name)
			}
		case *ast.CallExpr:
			if !slices.Contains(eventFuncs, calleeName(n)) || len(n.Args) < 4 || add(f, n.Args[2], n.Args[1], n.Args[3]) {
				return
			}
			why, known := dynamicReasons[f.name]
			if !known {
				t.Errorf("%s: the reason of an event is not a constant: use one, or add the file to forwarded", f.name)
			}
			if why != "" && !forwards[f.name] {
				others = append(others, why)
			}
			forwards[f.name] = true
		}
	})
	slices.SortFunc(list, func(a, b event) int { return strings.Compare(a.reason, b.reason) })
	return slices.Compact(list), others
}

// eventDescriptions are the descriptions of events without a constant.
var eventDescriptions = map[string]string{
	"OwnerRefInvalidNamespace": "an owner reference refers to another namespace; the built-in collector emits the same event",
}
