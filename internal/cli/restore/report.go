package restore

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/operator/restore"
)

// Report is what a restore has done. In a dry run, it is what it would do.
type Report struct {
	DryRun      string `json:"dryRun,omitempty"` // client or server
	Interrupted bool   `json:"interrupted,omitempty"`

	Notes     []string `json:"notes,omitempty"` // about the selection
	Planned   []Item   `json:"planned,omitempty"`
	Restored  []Item   `json:"restored,omitempty"`
	Existing  []Item   `json:"existing,omitempty"` // restored before
	Left      []Item   `json:"left,omitempty"`     // to the controllers that create them
	Warnings  []Item   `json:"warnings,omitempty"`
	Unchecked []Item   `json:"unchecked,omitempty"` // by the API server, in a dry run
	Conflicts []Item   `json:"conflicts,omitempty"`
	Blocked   []Item   `json:"blocked,omitempty"` // by conflicts of other objects
	Failures  []Item   `json:"failures,omitempty"`
	Remaining []Item   `json:"remaining,omitempty"` // when it was interrupted
}

// Item is an object.
type Item struct {
	Group     string    `json:"group,omitempty"`
	Kind      string    `json:"kind"`
	Namespace string    `json:"namespace,omitempty"`
	Name      string    `json:"name"`
	FormerUID types.UID `json:"formerUID,omitempty"`
	UID       types.UID `json:"uid,omitempty"`
	Message   string    `json:"message,omitempty"`
}

func itemOf(k restore.Key, former types.UID) Item {
	return Item{Group: k.Group, Kind: k.Kind, Namespace: k.Namespace, Name: k.Name, FormerUID: former}
}

func (i Item) with(message string) Item {
	i.Message = message
	return i
}

func (i Item) kind() string {
	if i.Group == "" {
		return i.Kind
	}
	return i.Kind + "." + i.Group
}

func (i Item) object() string { return i.kind() + "/" + i.Name }

// addPlan adds what a plan says.
func (r *Report) addPlan(plan restore.Plan) {
	for _, s := range plan.Steps {
		r.Planned = append(r.Planned, itemOf(s.Key, s.FormerUID))
	}
	for _, x := range plan.Existing {
		item := itemOf(x.Key, x.FormerUID)
		item.UID = x.CurrentUID
		r.Existing = append(r.Existing, item)
	}
	for _, key := range plan.Blocked {
		r.Blocked = append(r.Blocked, itemOf(key, ""))
	}
	for to, notes := range map[*[]Item][]restore.Note{&r.Left: plan.Left, &r.Conflicts: plan.Conflicts, &r.Warnings: plan.Warnings} {
		for _, n := range notes {
			*to = append(*to, itemOf(n.Key, "").with(n.Message))
		}
	}
}

// maxListed is the number of objects that are listed before they are restored; of more, each kind is
// counted.
const maxListed = 50

// printPlan prints what is to be restored, and what is not.
func (r *Report) printPlan(out io.Writer) {
	p := printer.PaletteFor(out)
	for _, note := range r.Notes {
		printer.Fprintln(out, note)
	}
	switch n := len(r.Planned); {
	case n == 0:
	case n <= maxListed:
		t := printer.Table{Header: []string{"NAMESPACE", "OBJECT", "FORMER UID"}}
		for _, i := range r.Planned {
			t.Add(printer.Cell{Text: i.Namespace}, printer.Cell{Text: i.object()}, printer.Cell{Text: string(i.FormerUID)})
		}
		_ = t.Write(out, p) // an error can't be reported either
	default:
		printer.Fprintf(out, "%d objects are to be restored (%s).\n", n, countKinds(r.Planned))
	}
	printItems(out, p, "Left alone:", r.Left)
	printItems(out, p, "Warnings:", r.Warnings)
	printItems(out, p, "Conflicts:", r.Conflicts)
	if n := len(r.Blocked); n != 0 {
		printer.Fprintf(out, "  and %s below them\n", printer.Count(n, "object", "objects"))
	}
}

// printItems prints a section, of which each line is an object with its message. Many objects with the
// same message are counted.
func printItems(out io.Writer, p printer.Palette, title string, items []Item) {
	var order []string
	by := map[string][]Item{}
	for _, i := range items {
		if by[i.Message] == nil {
			order = append(order, i.Message)
		}
		by[i.Message] = append(by[i.Message], i)
	}
	var lines []string
	for _, message := range order {
		same := by[message]
		if len(same) > maxSame {
			lines = append(lines, fmt.Sprintf("%d objects (%s): each %s", len(same), countKinds(same), message))
			continue
		}
		for _, i := range same {
			lines = append(lines, strings.TrimSpace(where(i)+i.object()+" "+message))
		}
	}
	printer.WriteLines(out, p, title, lines)
}

// maxSame is the number of objects with the same message that are listed.
const maxSame = 10

func where(i Item) string {
	if i.Namespace == "" {
		return ""
	}
	return i.Namespace + " "
}

// countKinds returns the number of objects of each kind.
func countKinds(items []Item) string {
	number := map[string]int{}
	for _, i := range items {
		number[i.kind()]++
	}
	var words []string
	for _, kind := range slices.SortedFunc(maps.Keys(number), func(a, b string) int { return cmp.Or(number[b]-number[a], strings.Compare(a, b)) }) {
		words = append(words, fmt.Sprintf("%s: %d", kind, number[kind]))
	}
	return strings.Join(words, ", ")
}

// printResult prints what was done.
func (r *Report) printResult(out io.Writer, planned int) {
	p := printer.PaletteFor(out)
	printItems(out, p, "Failed:", r.Failures)
	printItems(out, p, "Not checked:", r.Unchecked)
	verb := "Restored"
	if r.DryRun != "" {
		verb = "Would restore"
	}
	text := verb + " " + printer.Count(len(r.Restored), "object", "objects")
	if len(r.Restored) != 0 {
		text += " (" + countKinds(r.Restored) + ")"
	}
	for _, part := range []struct {
		items []Item
		words string
	}{
		{r.Existing, "restored before"}, {r.Left, "left alone"}, {r.Unchecked, "not checked"}, {r.Failures, "failed"}, {r.Remaining, "not attempted"},
	} {
		if len(part.items) != 0 {
			text += fmt.Sprintf("; %d %s", len(part.items), part.words)
		}
	}
	printer.Fprintf(out, "%s.\n", text)
	if r.Interrupted {
		printer.Fprintf(out, "Interrupted after %d of %s. Run the command again to continue: objects that were restored are recognized.\n",
			planned-len(r.Remaining), printer.Count(planned, "object", "objects"))
	}
}
