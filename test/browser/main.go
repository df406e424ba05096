// Command browser drives Chromium for tests: it reads steps from standard input, and writes a result for each, one JSON value per
// line. It ends with its input, and Chromium with it.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

const maxLine = 64 << 20 // bytes of a step, and of a result

// step is what to do. Exactly one of the fields without a comment is set.
type step struct {
	Open       string
	Evaluate   string // JavaScript; a promise is awaited
	Click      string // selector
	Type       string // text, at the focused element
	Press      string // name of a key, such as ArrowDown or Enter
	Screenshot string // file, in PNG
	Scripts    *bool  // whether pages run scripts
	Scheme     string // preferred color scheme: light or dark

	Width, Height int           // of a screenshot; 0: as large as the page
	Timeout       time.Duration // of the step
}

type result struct {
	Value    json.RawMessage `json:",omitempty"`
	Error    string          `json:",omitempty"`
	Messages []string        `json:",omitempty"` // of the browser since the last result: exceptions, and what a policy has blocked
}

func main() {
	chromium := flag.String("chromium", "chromium", "program to run")
	flag.Parse()
	if err := run(*chromium, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(chromium string, in io.Reader, out io.Writer) error {
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(chromium), chromedp.NoSandbox, chromedp.DisableGPU, chromedp.IgnoreCertErrors, chromedp.WindowSize(1400, 900),
		chromedp.Flag("allow-pre-commit-input", true)) // otherwise, Chromium ignores a click before it has painted a new page
	allocated, endAll := chromedp.NewExecAllocator(context.Background(), options...)
	defer endAll()
	var said messages
	var ctx context.Context
	listen := func(event any) {
		said.listen(event)
		if _, is := event.(*page.EventJavascriptDialogOpening); is { // it blocks the page, and a listener may not wait
			go func() {
				_ = chromedp.Do(ctx, call(page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true}))
			}()
		}
	}
	ctx, end := chromedp.NewContext(allocated, chromedp.WithListener(listen))
	defer end()
	if err := chromedp.Do(ctx, call(log.Enable, cdp.Empty{})); err != nil {
		return fmt.Errorf("start Chromium: %w", err)
	}
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxLine)
	results := json.NewEncoder(out)
	for lines.Scan() {
		var s step
		r := result{}
		err := json.Unmarshal(lines.Bytes(), &s)
		if err == nil {
			limited, cancel := context.WithTimeout(ctx, s.Timeout)
			r.Value, err = s.do(limited)
			cancel()
		}
		if err != nil {
			r.Error = err.Error()
		}
		r.Messages = said.take()
		if err := results.Encode(r); err != nil {
			return err
		}
	}
	return lines.Err()
}

// messages are what the browser says that a person would see: in its console, or in a dialog, which is accepted.
type messages struct {
	mu  sync.Mutex
	all []string
}

func (m *messages) listen(event any) {
	text := ""
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if e.Entry.Level == log.EntryLevelError {
			text = string(e.Entry.Source) + ": " + e.Entry.Text
		}
	case *runtime.EventExceptionThrown:
		text = "exception: " + e.ExceptionDetails.Text
		if o := e.ExceptionDetails.Exception; o != nil {
			text += " " + o.Description
		}
	case *page.EventJavascriptDialogOpening:
		text = "dialog: " + e.Message
	}
	if text != "" {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.all = append(m.all, text)
	}
}

func (m *messages) take() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.all
	m.all = nil
	return all
}

// call is a command of the browser's protocol as an action.
func call[P, R any](command cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

func (s step) do(ctx context.Context) (json.RawMessage, error) {
	switch {
	case s.Evaluate != "":
		value, err := chromedp.Run(ctx, chromedp.Evaluate[[]byte](s.Evaluate, chromedp.EvalAwaitPromise))
		if err == nil && len(value) == 0 {
			value = []byte("null") // undefined
		}
		return value, err
	case s.Screenshot != "":
		return nil, s.screenshot(ctx)
	default:
		action, err := s.action()
		if err != nil {
			return nil, err
		}
		return nil, chromedp.Do(ctx, action)
	}
}

// action returns what to do for a step without a result.
func (s step) action() (chromedp.Action[chromedp.Void], error) {
	switch {
	case s.Open != "":
		return chromedp.Navigate(s.Open), nil
	case s.Click != "":
		return chromedp.Click(s.Click, chromedp.NodeVisible), nil
	case s.Type != "":
		return chromedp.KeyEvent(s.Type), nil
	case s.Press != "":
		key, known := keys[s.Press]
		if !known {
			return nil, fmt.Errorf("unknown key %q", s.Press)
		}
		return chromedp.KeyEvent(key), nil
	case s.Scripts != nil:
		return call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !*s.Scripts}), nil
	case s.Scheme != "":
		return call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: s.Scheme}}}), nil
	default:
		return nil, errors.New("the step has nothing to do")
	}
}

var keys = map[string]string{
	"ArrowDown": kb.ArrowDown, "ArrowLeft": kb.ArrowLeft, "ArrowRight": kb.ArrowRight, "ArrowUp": kb.ArrowUp, "Enter": kb.Enter, "Escape": kb.Escape, "Tab": kb.Tab,
}

func (s step) screenshot(ctx context.Context) error {
	take := chromedp.FullScreenshot(100)
	if s.Width > 0 {
		if err := chromedp.Do(ctx, chromedp.EmulateViewport(int64(s.Width), int64(s.Height))); err != nil {
			return err
		}
		take = chromedp.CaptureScreenshot()
	}
	png, err := chromedp.Run(ctx, take)
	if err != nil {
		return err
	}
	return os.WriteFile(s.Screenshot, png, 0o644)
}
