package page

import (
	"cmp"
	"html/template"
	"net/url"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/cli/ownership"
	"github.com/gleaner-dev/gleaner/internal/cli/picture"
	"github.com/gleaner-dev/gleaner/operator/decide"
	"github.com/gleaner-dev/gleaner/operator/record"
)

// MaxRows is the maximum number of rows of a tree, and MaxBoxes of boxes of a picture. What does not fit is counted.
const (
	MaxRows  = 2000
	MaxBoxes = 600
)

// Graph is the content of the page Graph.
type Graph struct {
	Query GraphQuery
	Roots []*Node
	Kinds []string // of all objects, to select from

	Objects, Shown      int // before and after the selection
	Folded, NotRendered int
	States              []StateCount

	Picture    template.HTML // empty: not shown
	TooLarge   bool          // for a picture
	Unread     []string
	Preview    *Preview // nil: there is none
	CanPreview bool     // deletions can be previewed
	Failed     string   // why there is nothing to show
}

func (Graph) template() string { return "graph" }

// StateCount is how many objects are in a state.
type StateCount struct {
	State string
	Count int
}

// Node is an object in the tree.
type Node struct {
	*ownership.Object
	States   []Badge
	Children []*Node
	Below    int // number of objects below it
	Outcome  *Outcome
	Match    bool // it is selected itself, rather than shown because of what it owns
}

// Badge is a word about the state of an object.
type Badge struct{ Class, Text, Why string }

// Outcome is what a deletion would do to an object.
type Outcome struct{ Class, Text, Why string }

// Preview is the preview of a deletion.
type Preview struct {
	Target                      record.Object
	Cascade                     string
	Goes, Waits, Stays, Unknown int
	Outcomes                    map[types.UID]Outcome
	Notes, Unread               []string
	Failed                      string
}

// The states of objects, as the page names them.
const (
	Terminating = "terminating"
	Blocked     = "blocked"
	Dangling    = "dangling"
	NotFound    = "absent"
	NotRead     = "unknown"
	Held        = "held"
	Kept        = "kept"
)

// states are in the order in which they are offered.
var states = []string{Terminating, Blocked, Dangling, NotFound, NotRead, Held, Kept}

var stateMeanings = map[string]string{
	Terminating: "It is being deleted.",
	Blocked:     "It is being deleted, and waits for finalizers or dependents.",
	Dangling:    "An owner that it refers to does not exist.",
	NotFound:    "Objects refer to it as their owner, but it does not exist.",
	NotRead:     "Objects refer to it as their owner, but it could not be read.",
	Held:        "Gleaner keeps it until its policies have decided.",
	Kept:        "Its annotation gleaner.dev/keep keeps it from retention policies.",
}

// statesOf returns the states of an object.
func statesOf(o *ownership.Object) (badges []Badge) {
	add := func(state, text, why string) {
		badges = append(badges, Badge{Class: state, Text: text, Why: cmp.Or(why, stateMeanings[state])})
	}
	switch o.Missing {
	case "":
	case decide.Absent.String():
		add(NotFound, NotFound, o.Because)
	case decide.Present.String():
		add("unlisted", "not listed", "It exists, but is outside of what was read.")
	default:
		add(NotRead, NotRead, o.Because)
	}
	if o.Terminating != "" {
		add(Terminating, o.State(), "")
	}
	if o.Terminating != "" && (len(o.Finalizers) != 0 || o.Terminating != "Background") {
		add(Blocked, Blocked, "")
	}
	for _, owner := range o.Owners {
		if owner.Standing == decide.Absent.String() {
			add(Dangling, Dangling, cmp.Or(owner.Because, stateMeanings[Dangling]))
			break
		}
	}
	if o.Held {
		add(Held, Held, "")
	}
	if o.Kept {
		add(Kept, Kept, "")
	}
	return badges
}

// NewGraph returns the content for an ownership, which it changes. The preview, if there is one, is laid over it.
func NewGraph(o *ownership.Ownership, q GraphQuery, p *Preview) Graph {
	g := Graph{Query: q, Objects: len(o.Objects), Unread: o.Unread, Preview: p}
	g.count(o)
	selector, err := labels.Parse(q.Labels)
	if err != nil {
		g.Failed = "the labels " + q.Labels + " can't be read: write them as for kubectl -l, such as app=web,tier!=cache"
		return g
	}
	matches := map[types.UID]bool{}
	o.Keep(func(object *ownership.Object) bool {
		match := q.matches(object) && selector.Matches(labels.Set(object.Labels))
		if match {
			matches[object.UID] = true
		}
		return match
	})
	g.Shown = len(o.Objects)
	if !q.Unfolded && p == nil { // what happens to similar objects can differ
		o.Fold()
		g.Folded = o.Folded
	}
	g.Roots = nodes(o, p, matches, &g.NotRendered)
	if q.Picture && len(o.Objects) > MaxBoxes {
		g.NotRendered = len(o.Objects)
		g.TooLarge = true
	} else if q.Picture {
		g.NotRendered = 0
		g.Picture = draw(o, p)
	}
	return g
}

// draw returns the picture. What it contains is escaped by package picture.
func draw(o *ownership.Ownership, p *Preview) template.HTML {
	return template.HTML(picture.Inline(o, picture.Options{ //nolint:gosec // see above
		Link: func(object *ownership.Object) string { return ObjectURL(object.Object) },
		Class: func(object *ownership.Object) string {
			if p == nil {
				return ""
			}
			return map[string]string{Deleted: "deleted", Waits: "waits", Stays: "stays", Unknown: "unsure"}[p.Outcomes[object.UID].Class]
		},
	}))
}

// The classes of outcomes.
const (
	Deleted = "out-deleted"
	Waits   = "out-waits"
	Stays   = "out-stays"
	Unknown = "out-unknown"
)

// matches reports whether an object is selected itself.
func (q GraphQuery) matches(o *ownership.Object) bool {
	if q.Kind != "" && o.Kind != q.Kind {
		return false
	}
	if s := strings.ToLower(q.Search); s != "" && !strings.Contains(strings.ToLower(o.Kind+"/"+o.Name), s) {
		return false
	}
	return q.State == "" || slices.ContainsFunc(statesOf(o), func(b Badge) bool { return b.Class == q.State })
}

// count counts kinds and states.
func (g *Graph) count(o *ownership.Ownership) {
	counts := map[string]int{}
	for i := range o.Objects {
		object := &o.Objects[i]
		if !slices.Contains(g.Kinds, object.Kind) {
			g.Kinds = append(g.Kinds, object.Kind)
		}
		for _, b := range statesOf(object) {
			counts[b.Class]++
		}
	}
	slices.Sort(g.Kinds)
	for _, s := range states {
		if counts[s] != 0 {
			g.States = append(g.States, StateCount{s, counts[s]})
		}
	}
}

// nodes returns the roots of the tree, with at most MaxRows objects.
func nodes(o *ownership.Ownership, p *Preview, matches map[types.UID]bool, notRendered *int) (roots []*Node) {
	at := map[types.UID]*Node{}
	for i := range o.Objects { // owners come first
		object := &o.Objects[i]
		if i >= MaxRows {
			*notRendered = len(o.Objects) - i
			break
		}
		n := &Node{Object: object, States: statesOf(object), Match: matches[object.UID]}
		if p != nil {
			if outcome, known := p.Outcomes[object.UID]; known {
				n.Outcome = &outcome
			}
		}
		at[object.UID] = n
		if parent := at[object.Parent]; object.Parent != "" && parent != nil {
			parent.Children = append(parent.Children, n)
			continue
		}
		roots = append(roots, n)
	}
	for i := min(len(o.Objects), MaxRows) - 1; i >= 0; i-- { // dependents come last
		n := at[o.Objects[i].UID]
		if parent := at[n.Parent]; n.Parent != "" && parent != nil {
			parent.Below += 1 + n.Below
		}
	}
	return roots
}

// ObjectURL returns the address of the page about an object.
func ObjectURL(o record.Object) string {
	v := url.Values{"kind": {o.Kind}, "name": {o.Name}}
	if group, version, ok := strings.Cut(o.APIVersion, "/"); ok {
		v.Set("kind", o.Kind+"."+version+"."+group)
	}
	if o.Namespace != "" {
		v.Set("namespace", o.Namespace)
	}
	if o.UID != "" {
		v.Set("uid", string(o.UID))
	}
	return "/object?" + v.Encode()
}

// URL returns the address of the page about the object.
func (n Node) URL() string { return ObjectURL(n.Object.Object) }

// Open reports whether what is below it is shown at first.
func (n Node) Open() bool { return n.Depth < 2 || n.Target }

// Indent returns the depth for the stylesheet, which has a limit.
func (n Node) Indent() int { return min(n.Depth, 12) }

// Color returns the number of the color of the kind.
func (n Node) Color() int { return picture.Color(n.Kind) }

// Others returns the other propagation policies.
func (p Preview) Others() []string {
	return slices.DeleteFunc([]string{"background", "foreground", "orphan"}, func(c string) bool { return c == p.Cascade })
}

// Add adds the outcome of an object.
func (p *Preview) Add(uid types.UID, o Outcome) {
	p.Outcomes[uid] = o
	switch o.Class {
	case Deleted:
		p.Goes++
	case Waits:
		p.Waits++
	case Stays:
		p.Stays++
	default:
		p.Unknown++
	}
}

// Command returns the command that shows the same.
func (p Preview) Command() string {
	text := "gleaner preview delete " + strings.ToLower(p.Target.Kind) + "/" + p.Target.Name
	if p.Target.Namespace != "" {
		text += " -n " + p.Target.Namespace
	}
	return text + " --cascade=" + p.Cascade
}
