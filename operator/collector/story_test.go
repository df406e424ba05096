package collector_test

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/collector"
	"github.com/gleaner-dev/gleaner/operator/graph"
)

// A story is what happens in a cluster and what Gleaner makes of it. Nothing
// happens by itself: a change of the API is seen when the story says so, and
// an object that is woken is looked at when the story says so. Write one, run
// the test with -rewrite, then read the diff.
//
// What a command may be followed by, one to a line, is in [brackets].
//
//	given [OBJECT]             objects made, and seen at once
//	create [OBJECT]            objects made, and seen by nobody yet
//	update U [owners=(...)] [finalizers=(...)]
//	delete U [POLICY]          by a client
//	see U...                   the watch delivers objects as they are now
//	see-end U...               the watch delivers the end of objects
//	list KIND...               a watch begins anew, with a list
//	work [U...]                those, or all that are woken, are looked at
//	retry                      those are looked at that were to be tried again, a second later
//	barrier                    a round of the barrier, if one was asked for
//	settle                     see, work and barrier, until nothing is left
//	companion                  from now on another collector does the collecting
//	observe U...               from now on controllers of owners that orphan are waited for, for three
//	                           seconds; those of U report the generation that they observe
//	observed U...              they have observed objects as they are now
//	lease lapsed|renewed|lost  lapsed: not renewed in time, but not lost yet
//	without-keys, with-keys    the keys of state annotations can't be read, or can be again
//	govern KIND HOOK           a policy is in force; below it is its verdict
//	interrupted KIND           its watch has ended
//	sweep, restart, pass DURATION, expire
//	serve KIND, unserve KIND   by the API server
//	discover [failed=(GROUP/VERSION,...)]
//	fail VERB NAME with=CODE [times=N]; with=404 as good as a real one, or with=proxy404
//	before VERB NAME [times=N] [COMMAND]
//	                           what happens just before the next such requests
//	api                        what there is
//	why U                      what was decided last
//	count                      requests so far, by verb
//
// An OBJECT is KIND NAMESPACE/NAME [uid=U] [owners=(...)] [finalizers=(...)];
// a cluster-scoped one has no NAMESPACE/. An owner is KIND:NAME, KIND:NAME:UID
// or KIND:NAME:UID:block. Kinds are written Kind, Kind.group or
// Kind.version.group. An object's UID is its name unless said otherwise.
//
// A story that says "to be mended" shows what is so, and should not be.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		w := newWorld(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			w.t = t
			w.out.Reset()
			w.run(d.Cmd, wordsOf(d.CmdArgs), d.Input)
			w.next()
			if err := w.store.Check(); err != nil {
				t.Fatalf("%s: broken graph: %v", d.Pos, err)
			}
			return w.out.String()
		})
	})
}

type command func(w *world, args words, input string)

var commands map[string]command

func init() { // since before runs commands
	commands = map[string]command{
		"given": func(w *world, _ words, input string) {
			for _, args := range w.lines(input) {
				w.see(w.create(args))
			}
		},
		"create": func(w *world, _ words, input string) {
			for _, args := range w.lines(input) {
				w.create(args)
			}
		},
		"update":  func(w *world, args words, _ string) { w.update(args) },
		"delete":  func(w *world, args words, _ string) { w.delete(args) },
		"see":     func(w *world, args words, _ string) { w.each(args, func(uid string) { w.see(w.object(uid)) }) },
		"see-end": func(w *world, args words, _ string) { w.each(args, func(uid string) { w.seeEnd(types.UID(uid)) }) },
		"list":    listKinds,
		"work":    work,
		"retry": func(w *world, _ words, _ string) {
			w.now = w.now.Add(time.Second)
			w.work(slices.Collect(maps.Keys(w.later)))
		},
		"interrupted": func(w *world, args words, _ string) {
			w.store.Apply(graph.Interrupted{Kind: kindOf(args.plain[0]).GroupKind(), At: w.now})
		},
		"barrier": func(w *world, _ words, _ string) { w.barrier() },
		"settle":  func(w *world, _ words, _ string) { w.settle() },
		"sweep":   func(w *world, _ words, _ string) { w.store.Sweep() },
		"restart": func(w *world, _ words, _ string) { w.start() },
		"pass":    pass,
		"expire": func(w *world, _ words, _ string) {
			w.store.Apply(graph.Expired{Before: w.now.Add(-collector.ProofLifetime)})
		},
		"serve":    serve,
		"unserve":  unserve,
		"discover": func(w *world, args words, _ string) { w.rediscover(args.values["failed"]...) },
		"fail":     fail,
		"before":   before,
		"api":      showAPI,
		"why":      why,
		"count":    count,
		"govern":   govern,
		"lease":    lease,
		"companion": func(w *world, _ words, _ string) {
			w.companion = true
			w.connect()
		},
		"observe": func(w *world, args words, _ string) {
			w.observes = 3 * time.Second
			w.connect()
			w.observed(args)
		},
		"without-keys": func(w *world, _ words, _ string) { w.keysErr = errors.New("no answer") },
		"with-keys":    func(w *world, _ words, _ string) { w.keysErr = nil },
		"observed":     func(w *world, args words, _ string) { w.observed(args) },
	}
}

func (w *world) run(name string, args words, input string) {
	do, ok := commands[name]
	if !ok {
		w.t.Fatalf("there is no command %s", name)
	}
	do(w, args, input)
}

// lines reads a command's input.
func (w *world) lines(input string) []words {
	var lines []words
	for line := range strings.Lines(input) {
		first, args, err := datadriven.ParseLine(line)
		if err != nil {
			w.t.Fatal(err)
		}
		parsed := wordsOf(args)
		parsed.plain = slices.Insert(parsed.plain, 0, first)
		lines = append(lines, parsed)
	}
	return lines
}

func (w *world) each(args words, do func(uid string)) {
	for _, uid := range args.plain {
		do(uid)
	}
}

func listKinds(w *world, args words, _ string) {
	for _, r := range w.types.Collected() {
		if slices.ContainsFunc(args.plain, func(kind string) bool { return kindOf(kind).GroupKind() == r.GroupKind() }) {
			w.list([]catalog.Resource{r})
		}
	}
}

func work(w *world, args words, _ string) {
	ids := slices.Collect(maps.Keys(w.woken))
	if len(args.plain) != 0 {
		ids = nil
		w.each(args, func(uid string) { ids = append(ids, graph.IDOf(types.UID(uid))) })
	}
	w.work(ids)
}

func pass(w *world, args words, _ string) {
	d, err := time.ParseDuration(args.plain[0])
	if err != nil {
		w.t.Fatal(err)
	}
	w.now = w.now.Add(d)
}

func serve(w *world, args words, _ string) {
	gvk := kindOf(args.plain[0])
	t := servedType{kind: gvk.Kind, custom: true} // unless it is one that there was
	t.GroupVersionResource = gvk.GroupVersion().WithResource(strings.ToLower(gvk.Kind) + "s")
	for _, known := range allTypes() {
		if known.GroupResource() == t.GroupResource() {
			t.custom, t.clusterScoped, t.remote = known.custom, known.clusterScoped, known.remote
		}
	}
	w.api.types = append(w.api.types, t)
}

func unserve(w *world, args words, _ string) {
	w.api.types = slices.DeleteFunc(w.api.types, func(t servedType) bool {
		return t.GroupVersion().WithKind(t.kind) == kindOf(args.plain[0])
	})
}

func fail(w *world, args words, _ string) {
	times, err := strconv.Atoi(args.value("times", "1"))
	if err != nil {
		w.t.Fatal(err)
	}
	w.api.faults[args.plain[0]+" "+args.plain[1]] = &fault{with: args.value("with", ""), times: times}
}

func before(w *world, args words, input string) {
	times, err := strconv.Atoi(args.value("times", "1"))
	if err != nil {
		w.t.Fatal(err)
	}
	for range times {
		w.plan(args.plain[0], args.plain[1], func() {
			for _, line := range w.lines(input) {
				name := line.plain[0]
				line.plain = line.plain[1:]
				w.say("meanwhile: " + name + " " + strings.Join(line.plain, " "))
				w.run(name, line, "")
			}
		})
	}
}

func lease(w *world, args words, _ string) {
	switch args.plain[0] {
	case "lapsed":
		w.lapsed = errors.New("not renewed in time")
	case "renewed":
		w.lapsed = nil
	case "lost":
		w.gate.Follow()
	default:
		w.t.Fatalf("a lease is lapsed, renewed or lost, not %s", args.plain[0])
	}
}

func showAPI(w *world, _ words, _ string) {
	for _, o := range slices.SortedFunc(maps.Values(w.api.objects), func(x, y *object) int { return cmp.Compare(x.UID, y.UID) }) {
		fmt.Fprintln(&w.out, o)
	}
}

func why(w *world, args words, _ string) {
	entries := w.records.Entries(types.UID(args.plain[0]))
	if len(entries) != 0 {
		fmt.Fprintln(&w.out, entries[len(entries)-1])
	}
}

func count(w *world, _ words, _ string) {
	for _, verb := range slices.Sorted(maps.Keys(w.api.counts)) {
		fmt.Fprintf(&w.out, "%s %d\n", verb, w.api.counts[verb])
	}
}

// next writes which objects are queued, and which later.
func (w *world) next() {
	for _, set := range []struct {
		name string
		ids  map[graph.ID]struct{}
	}{{"woken", w.woken}, {"later", w.later}} {
		var names []string
		for id := range set.ids {
			names = append(names, string(w.uids[id]))
		}
		slices.Sort(names)
		if len(names) != 0 {
			fmt.Fprintf(&w.out, "%s: %s\n", set.name, strings.Join(names, " "))
		}
	}
	if len(w.ConfirmPending()) != 0 {
		w.out.WriteString("the barrier was asked\n")
	}
}
