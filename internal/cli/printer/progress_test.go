package printer

import (
	"bytes"
	"io"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/creack/pty"
)

// fakeStep says what is being done, and counts how often it was asked.
type fakeStep struct{ shown atomic.Int32 }

func (w *fakeStep) step() string {
	w.shown.Add(1)
	return "working"
}

// shownAfter lets time pass, which is the bubble's own, and returns how often it was shown.
func (w *fakeStep) shownAfter(d time.Duration) int32 {
	time.Sleep(d)
	synctest.Wait()
	return w.shown.Load()
}

func TestProgress_StartsAfterTwoSeconds(t *testing.T) {
	master, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	synctest.Test(t, func(t *testing.T) {
		var w fakeStep
		over := Progress(terminal, w.step)
		if n := w.shownAfter(2*time.Second - time.Millisecond); n != 0 {
			t.Errorf("before two seconds it is shown %d times", n)
		}
		if n := w.shownAfter(time.Millisecond); n != 1 {
			t.Errorf("after two seconds it is shown %d times", n)
		}
		if n := w.shownAfter(time.Second); n != 6 {
			t.Errorf("after three seconds it is shown %d times, and should be five times a second", n)
		}
		over()
		over() // as by a defer
		if n := w.shownAfter(time.Minute); n != 6 {
			t.Errorf("after the end it is shown %d times", n)
		}
	})
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	text, _ := io.ReadAll(master) // it ends with an error when nobody has the terminal open
	if want := strings.Repeat("\r\x1b[Kworking", 6) + "\r\x1b[K"; string(text) != want {
		t.Errorf("the terminal was sent %q, want %q: it is to be left empty", text, want)
	}
}

func TestProgress_SkipsShortSteps(t *testing.T) {
	master, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	synctest.Test(t, func(t *testing.T) {
		var w fakeStep
		over := Progress(terminal, w.step)
		w.shownAfter(time.Second)
		over()
		if n := w.shownAfter(time.Minute); n != 0 {
			t.Errorf("it is shown %d times", n)
		}
	})
	if err := terminal.Close(); err != nil {
		t.Fatal(err)
	}
	if text, _ := io.ReadAll(master); len(text) != 0 {
		t.Errorf("the terminal was sent %q", text)
	}
}

func TestProgress_IsShownOnTerminalsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w fakeStep
		var out bytes.Buffer
		over := Progress(&out, w.step)
		if n := w.shownAfter(time.Minute); n != 0 || out.Len() != 0 {
			t.Errorf("it is shown %d times, as %q", n, &out)
		}
		over()
	})
}
