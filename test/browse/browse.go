// Package browse drives a real browser for tests, through the program in test/browser.
package browse

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gleaner-dev/gleaner/devcluster/devtest"
	"github.com/gleaner-dev/gleaner/devcluster/gobuild"
)

// RequiredVariable is the environment variable that makes a missing browser a failure instead of a skipped test, if it is "required".
const RequiredVariable = "GLEANER_TEST_BROWSER"

const (
	timeout = 30 * time.Second // of a step
	maxLine = 64 << 20         // bytes of a result
	source  = "../browser"
)

// Browser is a window of a browser. A failed step ends the test.
type Browser struct {
	testing.TB

	// Messages are what the browser has said since the test began: exceptions, what a policy has blocked, and dialogs, which it accepts.
	Messages []string

	*driver
}

// driver is the program that drives the browser.
type driver struct {
	in     io.WriteCloser
	out    *bufio.Scanner
	cmd    *exec.Cmd
	folder string
}

// errNone means that the machine has no browser.
var errNone = errors.New("find a browser: no Chromium on the PATH: run apt-get install chromium; with " + RequiredVariable + "=required, this is a failure")

// Start starts a browser, which ends with Close or with this process. The folder of the package has to be two levels below the
// root.
func Start(ctx context.Context) (*Browser, error) {
	chromium, err := find()
	if err != nil {
		return nil, err
	}
	folder, err := os.MkdirTemp("", "gleaner-browser-")
	if err != nil {
		return nil, err
	}
	d := &driver{folder: folder}
	program := filepath.Join(folder, "browser")
	if err := gobuild.Run(ctx, gobuild.Build{Label: "browser", Name: "what drives a browser", Dir: source, Packages: []string{"."}, Output: program}, io.Discard); err != nil {
		return nil, errors.Join(err, os.RemoveAll(folder))
	}
	d.cmd = exec.CommandContext(context.WithoutCancel(ctx), program, "-chromium", chromium)
	d.cmd.Stderr = os.Stderr
	in, err1 := d.cmd.StdinPipe()
	out, err2 := d.cmd.StdoutPipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	if err := d.cmd.Start(); err != nil {
		return nil, err
	}
	d.in, d.out = in, bufio.NewScanner(out)
	d.out.Buffer(nil, maxLine)
	return &Browser{driver: d}, nil
}

// Close ends the browser.
func (d *driver) Close() {
	_ = d.in.Close() // ends it
	hung := time.AfterFunc(timeout, d.kill)
	defer hung.Stop()
	_ = d.cmd.Wait()
	_ = os.RemoveAll(d.folder)
}

func (d *driver) kill() { _ = d.cmd.Process.Kill() }

// Require skips a test if the machine has no browser, and fails it for any other error.
func Require(t testing.TB, err error) {
	t.Helper()
	switch {
	case errors.Is(err, errNone) && os.Getenv(RequiredVariable) != "required":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
}

// For returns the browser for a test.
func (b *Browser) For(t testing.TB) *Browser { return &Browser{TB: t, driver: b.driver} }

// find returns the browser of the machine.
func find() (string, error) {
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errNone
}

type result struct {
	Value    json.RawMessage
	Error    string
	Messages []string
}

func (b *Browser) step(s map[string]any) (json.RawMessage, error) {
	s["Timeout"] = timeout
	line, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	hung := time.AfterFunc(2*timeout, b.kill) // the program has a limit of its own
	defer hung.Stop()
	if _, err := b.in.Write(append(line, '\n')); err != nil {
		return nil, err
	}
	if !b.out.Scan() {
		return nil, fmt.Errorf("the browser ended: %w", b.out.Err())
	}
	var r result
	if err := json.Unmarshal(b.out.Bytes(), &r); err != nil {
		return nil, err
	}
	b.Messages = append(b.Messages, r.Messages...)
	if r.Error != "" {
		return nil, fmt.Errorf("%s: %s", line, r.Error)
	}
	return r.Value, nil
}

func (b *Browser) do(s map[string]any) json.RawMessage {
	b.Helper()
	value, err := b.step(s)
	if err != nil {
		b.Fatal(err)
	}
	return value
}

// Open goes to an address, and waits for the page.
func (b *Browser) Open(address string) { b.Helper(); b.do(map[string]any{"Open": address}) }

// Click clicks on the first element that a selector selects, once it is visible.
func (b *Browser) Click(selector string) { b.Helper(); b.do(map[string]any{"Click": selector}) }

// Type types text where the focus is.
func (b *Browser) Type(text string) { b.Helper(); b.do(map[string]any{"Type": text}) }

// Press presses a key, such as ArrowDown.
func (b *Browser) Press(key string) { b.Helper(); b.do(map[string]any{"Press": key}) }

// Scripts sets whether pages run scripts.
func (b *Browser) Scripts(run bool) { b.Helper(); b.do(map[string]any{"Scripts": run}) }

// Scheme sets the preferred color scheme, light or dark.
func (b *Browser) Scheme(name string) { b.Helper(); b.do(map[string]any{"Scheme": name}) }

// Screenshot writes a picture of the window in PNG; with a height of 0, of the whole page.
func (b *Browser) Screenshot(file string, width, height int) {
	b.Helper()
	path, err := filepath.Abs(file)
	if err != nil {
		b.Fatal(err)
	}
	b.do(map[string]any{"Screenshot": path, "Width": width, "Height": height})
}

// Evaluate evaluates JavaScript in the page, and decodes the value. A promise is awaited.
func (b *Browser) Evaluate(script string, into any) {
	b.Helper()
	if err := json.Unmarshal(b.do(map[string]any{"Evaluate": script}), into); err != nil {
		b.Fatalf("%s: %v", script, err)
	}
}

// Text returns the visible text of the first element that a selector selects.
func (b *Browser) Text(selector string) string {
	b.Helper()
	text, err := b.text(selector)
	if err != nil {
		b.Fatal(err)
	}
	return text
}

func (b *Browser) text(selector string) (text string, err error) {
	value, err := b.step(map[string]any{"Evaluate": "document.querySelector(" + quote(selector) + ")?.innerText ?? ''"})
	if err == nil {
		err = json.Unmarshal(value, &text)
	}
	return text, err
}

// Wait waits until the visible text of an element contains a text, also on the page that a click leads to.
func (b *Browser) Wait(selector, text string) {
	b.Helper()
	devtest.Eventually(b, timeout, func() error {
		got, err := b.text(selector) // fails while the browser goes to another page
		if err == nil && !strings.Contains(got, text) {
			err = fmt.Errorf("%s has no %q: %q", selector, text, got)
		}
		return err
	})
}

// ExpectNoMessages reports what the browser has said.
func (b *Browser) ExpectNoMessages() {
	b.Helper()
	for _, m := range b.Messages {
		b.Error("the browser says: " + m)
	}
	b.Messages = nil
}

func quote(text string) string {
	quoted, _ := json.Marshal(text) // of a string, without an error
	return string(quoted)
}
