package run

import (
	"strings"
	"testing"

	eventrecord "k8s.io/client-go/tools/record"
)

func TestEventsAreOneLineAndPrintable(t *testing.T) {
	fake := eventrecord.NewFakeRecorder(3)
	p, hostile := printable{fake}, "kept\n  Normal  Deleted  forged\x1b[2J"
	p.Event(nil, "Normal", "Kept", hostile)
	p.Eventf(nil, "Normal", "Kept", "%s", hostile)
	p.AnnotatedEventf(nil, nil, "Normal", "Kept", "%s", hostile)
	for range 3 {
		if got := <-fake.Events; strings.ContainsAny(got, "\n\x1b") || !strings.Contains(got, `kept\n  Normal`) {
			t.Errorf("recorded %q", got)
		}
	}
}
