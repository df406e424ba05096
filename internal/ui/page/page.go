// Package page renders the pages of the web UI as HTML, from what was read of a cluster.
//
// Everything in it is a function of its arguments. Names, annotations and messages are attacker-controlled: html/template
// escapes them, and characters that would change the order or the look of other text are shown as escapes.
package page

import (
	"embed"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/escape"
)

//go:embed templates static
var files embed.FS

// Static returns the stylesheet, the script and the icon.
func Static() fs.FS {
	static, err := fs.Sub(files, "static")
	if err != nil {
		panic(err) // the folder is embedded
	}
	return static
}

// Frame is what all pages have around their content.
type Frame struct {
	Title string
	Path  string // of the page, such as /graph
	From  string // where objects are from: a context of the kubeconfig, or files
	Files bool   // objects are from files: there is no cluster
	Bare  bool   // without the navigation

	// User is the user that was logged in; empty: the pages are for who started the program.
	User string

	// Namespace is the selected one; empty: all.
	Namespace  string
	Namespaces []string // to select from

	At      time.Time // when the content was read
	Refresh int       // seconds after which a browser without JavaScript reads the page again; 0: never

	// Live is the path of the event stream that updates the content. Empty: it is not updated.
	Live string

	Content any
}

// Section is an entry of the navigation.
type Section struct{ Path, Name string }

// Sections returns the entries of the navigation.
func (f Frame) Sections() []Section {
	if f.Bare {
		return nil
	}
	if f.Files {
		return []Section{{"/graph", "Graph"}}
	}
	return []Section{{"/", "Now"}, {"/graph", "Graph"}, {"/stuck", "Stuck"}, {"/decisions", "Decisions"}, {"/policies", "Policies"}, {"/archive", "Archive"}}
}

// Home returns the path of the first page.
func (f Frame) Home() string {
	if all := f.Sections(); len(all) != 0 {
		return all[0].Path
	}
	return "/"
}

// View is the content of a page.
type View interface{ template() string }

// Render writes a page.
func Render(out io.Writer, f Frame, v View) error { return execute(out, "page", f, v) }

// Fragment writes the content of a page without its frame, as an event of Frame.Live has it.
func Fragment(out io.Writer, f Frame, v View) error { return execute(out, "content", f, v) }

func execute(out io.Writer, name string, f Frame, v View) error {
	f.Content = v
	var b strings.Builder
	if err := templates[v.template()].ExecuteTemplate(&b, name, f); err != nil {
		return fmt.Errorf("render page: %w", err)
	}
	_, err := io.WriteString(out, escape.Lines(b.String()))
	return err
}

// templates has the templates of each content, together with those that all pages use.
var templates = func() map[string]*template.Template {
	shared := template.Must(template.New("").Funcs(template.FuncMap{
		"ago": ago, "commands": Commands, "count": printer.Count, "dict": dict, "line": printer.OneLine, "moment": moment, "percent": percent, "since": duration.HumanDuration,
	}).ParseFS(files, "templates/frame.html", "templates/shared.html"))
	all := map[string]*template.Template{}
	for _, name := range []string{"now", "graph", "stuck", "decisions", "policies", "object", "replay", "archive", "archived", "message"} {
		all[name] = template.Must(template.Must(shared.Clone()).ParseFS(files, "templates/"+name+".html"))
	}
	return all
}()

// dict returns a map of names and values, as the argument of a template.
func dict(pairs ...any) map[string]any {
	m := map[string]any{}
	for i := 0; i+1 < len(pairs); i += 2 {
		m[fmt.Sprint(pairs[i])] = pairs[i+1]
	}
	return m
}

// ago returns how long before a time another one was, as kubectl does.
func ago(now time.Time, t any) string {
	if at := timeOf(t); !at.IsZero() {
		return duration.HumanDuration(now.Sub(at))
	}
	return ""
}

// timeOf returns a time of any of the types that reports have; zero if there is none.
func timeOf(t any) time.Time {
	switch t := t.(type) {
	case time.Time:
		return t
	case *time.Time:
		return ptr.Deref(t, time.Time{})
	case metav1.Time:
		return t.Time
	case *metav1.Time:
		return ptr.Deref(t, metav1.Time{}).Time
	default:
		return time.Time{}
	}
}

// moment returns a time for the attribute datetime, and for people.
func moment(t any) string {
	if at := timeOf(t); !at.IsZero() {
		return at.UTC().Format(time.RFC3339)
	}
	return ""
}

// percent returns how much a part is of a whole, from 0 to 100.
func percent(part, whole int) int { return 100 * min(max(part, 0), max(whole, 1)) / max(whole, 1) }
