package reference

import (
	"go/ast"
	"slices"
	"strings"
	"testing"
)

// tellers are the functions that raise an event: about what, of which type, for
// which reason, and with which message.
var tellers = []string{"Event", "Eventf", "Tell"}

// forwarded are the files that raise events whose reason comes from elsewhere, and
// from where. One that is not here has its reason written where it is raised.
var forwarded = map[string]string{
	"operator/loop/events.go":     "", // it passes on what it is given
	"operator/loop/loop.go":       "", // hands on
	"operator/loop/finalize.go":   "", // those of toldOfFinalizers, and what hands on
	"operator/loop/note.go":       "", // those of announced
	"operator/intents/intents.go": "whatever the module writes into an `event` intent, about the object, with the name of its resource before the message",
	"operator/modules/status.go": "the [reason of a condition](conditions.md), about the resource that has it, when `Accepted`, `ModuleReady`, `Fetched` or `Compiled` changes: " +
		"Warning if it is not true, else Normal",
}

type event struct{ reason, kind, about, meaning string }

const eventsPreamble = `# Events

What Gleaner tells by Kubernetes events: ` + "`kubectl events --for KIND/NAME`" + `. Plain deletes raise none, since nothing is left to attach them to; those are in the
[records](../records.md) and the log. This page is written from the code, by ` + "`make generate`" + `.

| reason | type | about | |
|---|---|---|---|
`

func describeEvents(t *testing.T, code source) string {
	list, others := code.events(t)
	if len(list) == 0 {
		t.Error("no events are found")
	}
	var b strings.Builder
	b.WriteString(eventsPreamble)
	for _, e := range list {
		b.WriteString(row("`"+e.reason+"`", e.kind, e.about, plain(e.meaning)))
	}
	b.WriteString("\nAnd with reasons that come from elsewhere:\n\n")
	for _, other := range others {
		b.WriteString("- " + other + ".\n")
	}
	b.WriteString("\n## Reasons of decisions\n\nIn records, the log, and the label `reason` of `gleaner_decisions_total`.\n\n| reason | |\n|---|---|\n")
	for _, c := range code.constsOf("Reason") {
		if c.value != "" && (c.pkg == "decide" || c.pkg == "finalize") {
			b.WriteString(row("`"+c.value+"`", plain(sentence(c.comment))))
		}
	}
	return b.String()
}

// events finds what is raised with a constant reason, where it is raised or in a
// table of reasons, and the other places.
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
		if strings.HasPrefix(f.name, "operator/modules/") {
			about = "the resource"
		}
		meaning := c.comment
		if meaning == "" {
			meaning = meanings[text]
		}
		if meaning == "" && message != nil {
			meaning = s.leading(f, message)
		}
		if meaning == "" {
			t.Errorf("%s: nobody says what the event %s means: comment its constant, or add it to meanings", f.name, text)
		}
		list = append(list, event{text, strings.TrimPrefix(selector(kind), "corev1.EventType"), about, sentence(meaning)})
		return true
	}
	s.each(func(f file, n ast.Node) {
		switch n := n.(type) {
		case *ast.KeyValueExpr:
			if strings.HasPrefix(selector(n.Value), "corev1.EventType") && !add(f, n.Key, n.Value, nil) {
				t.Errorf("%s: the reason of an event can't be read: write a constant", f.name)
			}
		case *ast.CallExpr:
			if !slices.Contains(tellers, called(n)) || len(n.Args) < 4 || add(f, n.Args[2], n.Args[1], n.Args[3]) {
				return
			}
			why, known := forwarded[f.name]
			if !known {
				t.Errorf("%s: the reason of an event can't be read: write a constant, or say in forwarded where it comes from", f.name)
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

// meanings are those of events that have no constant.
var meanings = map[string]string{
	"OwnerRefInvalidNamespace": "an owner reference leads into another namespace; the built-in collector says the same",
}
