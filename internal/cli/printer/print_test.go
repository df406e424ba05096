package printer

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestFprintf_PrintsArgumentsOnOneLine(t *testing.T) {
	var out bytes.Buffer
	type name string
	for _, err := range []error{
		second(Fprintf(&out, "%s|%-6s|%q|%v|%3d|%s|%.1f\n", "a\nb", "c\x1b", "d\n", name("e\te"), 7, time.Second, 0.25)),
		second(Fprintf(&out, "%v %s\n", errors.New("f\ng"), Safe("h\ni"))),
		second(Fprintln(&out, "j\nk", []string{"l\nm"})),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	want := "a\\nb|c^[    |\"d\\n\"|e\\te|  7|1s|0.2\nf\\ng h\ni\nj\\nk [l\\nm]\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}

func second(_ int, err error) error { return err }

func TestGuard_PassesTextAndColors(t *testing.T) {
	var out bytes.Buffer
	w := Guard(&out)
	if Guard(w) != w || Raw(w) != &out || Raw(&out) != &out {
		t.Error("a guard is put around a guard, or what it writes to is not to be had")
	}
	for _, part := range []string{"a\x1b[31mb\n", Palette{on: true}.Paint(Bad, "c"), "\xe2\x94", "\x9c d\te\u202e\n"} {
		if n, err := w.Write([]byte(part)); err != nil || n != len(part) {
			t.Fatal(n, err)
		}
	}
	want := "a^[[31mb\n\x1b[31mc\x1b[0m├ d\te\\u202e\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Error(diff)
	}
}
