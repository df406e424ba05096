package graph_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/graph"
)

// A story is a file of events, each followed by the objects returned and by the whole
// graph. Write one, run the test with -rewrite, then read the diff.
//
//	see KIND NAMESPACE/NAME [uid=U] [rv=N] [owners=(...)] [terminating] [foreground] [orphan] [held]
//	read ...                         a read outside the watch
//	delete KIND NAMESPACE/NAME [uid=U] [at=SECONDS]
//	interrupted KIND at=SECONDS      its watch has ended
//	relist KIND rv=N [listed=(U,...)]
//	typegone KIND
//	absent KIND NAMESPACE/NAME [uid=U] [at=SECONDS]
//	expire before=SECONDS
//	look U
//	cycle U
//	has U
//
// A cluster-scoped object has no NAMESPACE/ before its name. An owner is
// written KIND:NAME, KIND:NAME:UID or KIND:NAME:UID:block. Kinds are written
// Kind, Kind.group or Kind.version.group. An object's UID is its name by
// default.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		s := &story{g: graph.New(), rv: 100, uids: map[graph.ID]string{}}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			out := s.run(t, d)
			if err := s.g.Check(); err != nil {
				t.Fatalf("%s: broken graph: %v", d.Pos, err)
			}
			return out
		})
	})
}

type story struct {
	g    *graph.Graph
	rv   int
	uids map[graph.ID]string // of all objects so far
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	args := arguments(d)
	switch d.Cmd {
	case "see":
		return s.apply(graph.Seen{Object: s.object(args)})
	case "read":
		return s.apply(graph.Read{Object: s.object(args)})
	case "delete":
		return s.apply(graph.Deleted{Object: s.object(args), At: args.time("at")})
	case "interrupted":
		return s.apply(graph.Interrupted{Kind: kindOf(args.words[0]).GroupKind(), At: args.time("at")})
	case "relist":
		listed := map[graph.ID]struct{}{}
		for _, uid := range args.list("listed") {
			listed[graph.IDOf(types.UID(uid))] = struct{}{}
		}
		return s.apply(graph.Relisted{Kind: kindOf(args.words[0]).GroupKind(), ResourceVersion: args.value("rv", ""), Listed: listed})
	case "listing":
		return s.apply(graph.Listing{
			Kind: kindOf(args.words[0]).GroupKind(), ResourceVersion: args.value("rv", ""), Incomparable: args.has("incomparable"), Streamed: args.has("streamed"),
		})
	case "twins":
		return fmt.Sprint(s.g.EquivalentKinds())
	case "typegone":
		return s.apply(graph.TypeGone{Kind: kindOf(args.words[0]).GroupKind()})
	case "absent":
		o := s.object(args)
		return s.apply(graph.Absent{Claim: graph.Coordinates{UID: o.UID, Kind: o.Kind, Namespace: o.Namespace, Name: o.Name}, At: args.time("at")})
	case "expire":
		return s.apply(graph.Expired{Before: args.time("before")})
	case "look":
		return s.view(args.words[0])
	case "cycle":
		edge, found := s.g.Cycle(graph.IDOf(types.UID(args.words[0])))
		if !found {
			return "none"
		}
		return fmt.Sprintf("unblock %s -> %s (of %d)", edge.Dependent.Object.UID, s.uid(edge.Owner), edge.Size)
	case "has":
		return fmt.Sprint(s.g.Has(types.UID(args.words[0])))
	}
	t.Fatalf("%s: no such command", d.Pos)
	return ""
}

func (s *story) apply(e graph.Event) string {
	woken := s.g.Apply(e, nil)
	var names []string
	for _, id := range woken {
		names = append(names, s.uid(id))
	}
	slices.Sort(names)
	names = slices.Compact(names)
	var b strings.Builder
	if len(names) != 0 {
		fmt.Fprintf(&b, "woken: %s\n", strings.Join(names, " "))
	}
	dump := s.g.Dump()
	for _, n := range dump.Nodes {
		fmt.Fprintf(&b, "%s\n", describe(n, dump))
	}
	return b.String()
}

func describe(n graph.DumpNode, dump graph.Dump) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (%s)", n.UID, n.State)
	var owners []string
	for _, e := range dump.Edges {
		if e.Dependent == n.UID {
			owners = append(owners, string(e.Owner)+map[bool]string{true: "!"}[e.Blocking])
		}
	}
	if len(owners) != 0 {
		fmt.Fprintf(&b, " owned by %s", strings.Join(owners, " "))
	}
	for _, f := range []struct {
		on   bool
		name string
	}{{n.Terminating, "terminating"}, {n.Foreground, "foreground"}, {n.Orphan, "orphan"}} {
		if f.on {
			b.WriteString(" " + f.name)
		}
	}
	return b.String()
}

func (s *story) view(uid string) string {
	view, ok := s.g.Lookup(graph.IDOf(types.UID(uid)))
	if !ok {
		return "not seen"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s rv=%s dependents=%d blocking=%d\n", view.Object.UID, view.Object.Kind.Kind, view.Object.ResourceVersion, view.Dependents, view.Blocking)
	for _, c := range view.Claims {
		fmt.Fprintf(&b, "%s %s is %s", c.Reference.Kind, c.Reference.Name, c.State)
		if c.State == graph.Elsewhere {
			fmt.Fprintf(&b, " (seen in %q)", c.OwnerNamespace)
		}
		if c.Stale {
			b.WriteString(", which is to be asked for again")
		}
		b.WriteString("\n")
	}
	for _, blocker := range view.Blockers {
		state := map[bool]string{true: " on its way out"}[blocker.Terminating] + map[bool]string{true: " held"}[blocker.HasFinalizers]
		fmt.Fprintf(&b, "held up by %s %s%s\n", blocker.Object.Kind.Kind, blocker.Object.Name, state)
	}
	return b.String()
}

func (s *story) uid(id graph.ID) string { return s.uids[id] }

type args struct {
	words  []string
	values map[string][]string
}

func arguments(d *datadriven.TestData) args {
	a := args{values: map[string][]string{}}
	for _, arg := range d.CmdArgs {
		if len(arg.Vals) == 0 {
			a.words = append(a.words, arg.Key)
			continue
		}
		a.values[arg.Key] = arg.Vals
	}
	return a
}

func (a args) has(word string) bool     { return slices.Contains(a.words, word) }
func (a args) list(key string) []string { return a.values[key] }

func (a args) value(key, otherwise string) string {
	if v := a.values[key]; len(v) != 0 {
		return v[0]
	}
	return otherwise
}

func (a args) time(key string) time.Time {
	seconds, err := strconv.ParseInt(a.value(key, "0"), 10, 64)
	if err != nil {
		panic(err) // a story that is written wrong
	}
	return time.Unix(seconds, 0)
}

func (s *story) object(a args) graph.Object {
	namespace, name, found := strings.Cut(a.words[1], "/")
	if !found {
		namespace, name = "", namespace
	}
	s.rv++
	uid := types.UID(a.value("uid", name))
	s.uids[graph.IDOf(uid)] = string(uid)
	return graph.Object{
		UID:             uid,
		ResourceVersion: a.value("rv", fmt.Sprint(s.rv)),
		Kind:            kindOf(a.words[0]),
		Namespace:       namespace,
		Name:            name,
		Owners:          references(a.list("owners")),
		Terminating:     a.has("terminating"),
		Foreground:      a.has("foreground"),
		Orphan:          a.has("orphan"),
		OtherFinalizers: a.has("held"),
	}
}

func kindOf(text string) schema.GroupVersionKind {
	gvk, gk := schema.ParseKindArg(text)
	if gvk != nil {
		return *gvk
	}
	return gk.WithVersion("v1")
}

func references(texts []string) []metav1.OwnerReference {
	var refs []metav1.OwnerReference
	for _, text := range texts {
		parts := strings.Split(text, ":")
		apiVersion, kind := kindOf(parts[0]).ToAPIVersionAndKind()
		ref := metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: parts[1], UID: types.UID(parts[1])}
		if len(parts) > 2 && parts[2] != "" {
			ref.UID = types.UID(parts[2])
		}
		if len(parts) > 3 {
			ref.BlockOwnerDeletion = ptr.To(parts[3] == "block")
		}
		refs = append(refs, ref)
	}
	return refs
}
