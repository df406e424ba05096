package gobuild

import (
	"fmt"
	"testing"
)

func TestProgressCountsThePackagesThatAreLeft(t *testing.T) {
	m := meter{pending: map[string]bool{"fmt": true, "os": true, "example.com/a": true, "example.com/b": true}, total: 4}
	for _, step := range []struct{ printed, want string }{
		{"", "0%, 0 of 4 packages"},
		{"os\nfm", "25%, 1 of 4 packages"}, // the rest of the line is to come
		{"t\n", "50%, 2 of 4 packages"},
		{"fmt\n", "50%, 2 of 4 packages"},
		{"unheard/of\n", "50%, 2 of 4 packages"},
		{"example.com/a\r\n", "75%, 3 of 4 packages"},
		{"example.com/b\n", "100%, linking"},
	} {
		if _, err := fmt.Fprint(&m, step.printed); err != nil {
			t.Fatal(err)
		}
		if got := m.compiling(); got != step.want {
			t.Errorf("after %q: got %q, want %q", step.printed, got, step.want)
		}
	}
}

func TestDownloadsAreCountedAndNoPartOfAnError(t *testing.T) {
	var m meter
	if got := m.loading(); got != "reading source files" {
		t.Errorf("got %q", got)
	}
	for range 1200 {
		fmt.Fprintln(&m, "go: downloading example.com/m v1.0.0")
	}
	fmt.Fprint(&m, "# example.com/m\nm.go:1: no\nbad")
	if got := m.loading(); got != "downloading modules, 1,200 so far" {
		t.Errorf("got %q", got)
	}
	if got := m.tail(2); got != "m.go:1: no\nbad" {
		t.Errorf("got %q", got)
	}
}

func TestNumbersAreGroupedByThousands(t *testing.T) {
	for n, want := range map[int]string{0: "0", 999: "999", 1508: "1,508", 1234567: "1,234,567"} {
		if got := formatThousands(n); got != want {
			t.Errorf("%d: got %q, want %q", n, got, want)
		}
	}
}
