package kubectl

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

// working says what is being done, and counts how often it was asked.
type working struct{ asked atomic.Int32 }

func (w *working) doing() string {
	w.asked.Add(1)
	return "working"
}

// after lets time pass, which is the bubble's own, and returns how often it was shown.
func (w *working) after(d time.Duration) int32 {
	time.Sleep(d)
	synctest.Wait()
	return w.asked.Load()
}

func TestProgressIsShownOnATerminalThatHasWaitedTwoSeconds(t *testing.T) {
	master, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	synctest.Test(t, func(t *testing.T) {
		var w working
		over := Progress(terminal, w.doing)
		if n := w.after(2*time.Second - time.Millisecond); n != 0 {
			t.Errorf("before two seconds it is shown %d times", n)
		}
		if n := w.after(time.Millisecond); n != 1 {
			t.Errorf("after two seconds it is shown %d times", n)
		}
		if n := w.after(time.Second); n != 6 {
			t.Errorf("after three seconds it is shown %d times, and should be five times a second", n)
		}
		over()
		over() // as by a defer
		if n := w.after(time.Minute); n != 6 {
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

func TestWhatIsDoneWithinTwoSecondsShowsNoProgress(t *testing.T) {
	master, terminal, err := pty.Open()
	if err != nil {
		t.Fatal(err)
	}
	defer master.Close()
	synctest.Test(t, func(t *testing.T) {
		var w working
		over := Progress(terminal, w.doing)
		w.after(time.Second)
		over()
		if n := w.after(time.Minute); n != 0 {
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

func TestProgressIsForTerminalsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w working
		var out bytes.Buffer
		over := Progress(&out, w.doing)
		if n := w.after(time.Minute); n != 0 || out.Len() != 0 {
			t.Errorf("it is shown %d times, as %q", n, &out)
		}
		over()
	})
}
