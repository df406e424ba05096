package printer

import (
	"bytes"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLive_ReplacesTheLinesBefore(t *testing.T) {
	var out bytes.Buffer
	live := &Live{out: &out}
	for _, step := range []struct {
		show []string
		want string
	}{
		{[]string{"a", "b"}, "\r\x1b[J\x1b[?7la\nb\n\x1b[?7h"},
		{[]string{"c\x1b[2Jd\ne"}, "\x1b[2A\r\x1b[J\x1b[?7lc^[[2Jd\\ne\n\x1b[?7h"},
		{nil, "\x1b[1A\r\x1b[J\x1b[?7l\x1b[?7h"},
		{nil, "\r\x1b[J\x1b[?7l\x1b[?7h"},
	} {
		out.Reset()
		live.Show(step.show...)
		if diff := cmp.Diff(step.want, out.String()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", step.show, diff)
		}
	}
}

func TestNewLive_NeedsATerminal(t *testing.T) {
	if live := NewLive(&bytes.Buffer{}); live != nil {
		t.Errorf("a buffer is one: %+v", live)
	}
}
