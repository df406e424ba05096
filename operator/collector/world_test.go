package collector_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	eventrecord "k8s.io/client-go/tools/record"

	"github.com/gleaner-dev/gleaner/operator/catalog"
	"github.com/gleaner-dev/gleaner/operator/collector"
	"github.com/gleaner-dev/gleaner/operator/gate"
	"github.com/gleaner-dev/gleaner/operator/gather"
	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/graphstore"
	"github.com/gleaner-dev/gleaner/operator/policystatus"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/recorder"
	"github.com/gleaner-dev/gleaner/operator/writer"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/policies/builtin"
)

var beginning = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// world is a cluster and a Collector, without goroutines and without a queue: a story says
// what is watched, what is reconciled, and what changes in the meantime.
type world struct {
	t        *testing.T
	api      *api
	store    *graphstore.Store
	gate     gate.Gate
	records  *record.Store
	recorder *recorder.Recorder
	events   eventrecord.EventRecorder // of Gleaner; may be nil
	*collector.Collector
	types    *catalog.Catalog // as the Collector knows them
	now      time.Time
	reported *eventrecord.FakeRecorder

	uids  map[graph.ID]types.UID
	shown map[types.UID]int                 // the resourceVersion that was last delivered
	marks map[schema.GroupResource]int      // the same of whole types
	asked map[schema.GroupVersion]time.Time // when discovery was asked last
	woken map[graph.ID]struct{}             // to be looked at
	later map[graph.ID]struct{}             // to be looked at again of themselves
	plans map[string][]func()               // what happens just before a request

	companion, dryRun bool
	observes          time.Duration // how long controllers are waited for
	steps             []writer.Step // that writes pass
	lapsed            error         // why the lease can't be relied on
	keysErr           error         // why the keys of state annotations can't be read
	policies          []*policies.Policy
	policySet         func() *policies.Set // nil until they are known

	saying   sync.Mutex // covers out
	out      strings.Builder
	queueing sync.Mutex // covers woken, in tests that sweep
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, now: beginning, uids: map[graph.ID]types.UID{}, plans: map[string][]func(){}}
	w.api = newAPI(w.say)
	w.api.meet = w.happen
	w.start()
	return w
}

// start starts a new Collector: it leads, may write, and knows nothing but the types.
func (w *world) start() {
	w.shown, w.marks = map[types.UID]int{}, map[schema.GroupResource]int{}
	w.woken, w.later = map[graph.ID]struct{}{}, map[graph.ID]struct{}{}
	w.asked = map[schema.GroupVersion]time.Time{}
	w.types = w.api.catalog(nil)
	w.store = graphstore.New(func() time.Time { return w.now })
	w.records = record.NewStore(record.Limits{})
	w.reported = eventrecord.NewFakeRecorder(100)
	w.reported.IncludeObject = true
	w.policySet = func() *policies.Set { return policies.NewSet(w.policies) }
	w.connect()
	w.store.Feed(func(id graph.ID, _ string, _ int) {
		w.queueing.Lock() // sweeps are concurrent
		defer w.queueing.Unlock()
		w.woken[id] = struct{}{}
	})
	w.store.Lead()
	w.gate.Lead()
	w.gate.SetLease(func() error { return w.lapsed })
	w.gate.SetProbe(gate.Open)
	w.list(w.types.Collected())
}

// connect makes a Collector on the Store.
func (w *world) connect() {
	client, err := metadata.NewForConfig(&rest.Config{Host: "http://api.invalid", Transport: w.api, QPS: -1})
	if err != nil {
		w.t.Fatal(err)
	}
	now := func() time.Time { return w.now }
	w.recorder = recorder.New(recorder.Options{
		Records: w.records, Observations: policystatus.NewObservations(now), Default: builtin.Policy{}.Name(), Log: logr.New(decided(w.say)), Now: now,
		Events: w.events, BuiltinEvents: w.reported,
	})
	w.Collector = collector.New(collector.Options{
		Store: w.store, Gate: &w.gate, Recorder: w.recorder, Policies: func() *policies.Set { return w.policySet() }, Default: builtin.Policy{},
		Client: client, Watching: client, Serves: w.discover, Reader: storyReader{w.api},
		Types: gather.Sources{
			Catalog: func() *catalog.Catalog { return w.types },
			Absent: func(_ context.Context, gk schema.GroupKind) (bool, error) {
				_, served := w.api.catalog(nil).Preferred(gk)
				return !served, nil
			},
		},
		StateKeys:      w.stateKeys,
		ObserveTimeout: w.observes, Companion: w.companion, DryRun: w.dryRun, Steps: w.steps, Now: now,
		Sleep: func(_ context.Context, d time.Duration) { w.now = w.now.Add(d) },
	})
}

// discover is what discovery says at this moment, asked once a second for each
// group and version.
func (w *world) discover(_ context.Context, resource schema.GroupVersionResource) (bool, error) {
	gv := resource.GroupVersion()
	if at, ok := w.asked[gv]; !ok || w.now.Sub(at) > time.Second {
		w.asked[gv] = w.now
		w.api.counts["DISCOVER"]++
		w.say("DISCOVER " + gv.String())
	}
	_, served := w.api.serves(resource)
	return served, nil
}

func (w *world) say(line string) {
	w.saying.Lock() // reviews are concurrent
	defer w.saying.Unlock()
	fmt.Fprintf(&w.out, "  %s\n", line)
}

// plan has something happen just before the next request of that kind.
func (w *world) plan(verb, name string, do func()) {
	w.plans[verb+" "+name] = append(w.plans[verb+" "+name], do)
}

func (w *world) happen(verb, name string) {
	next := w.plans[verb+" "+name]
	if len(next) == 0 {
		return
	}
	w.plans[verb+" "+name] = next[1:]
	next[0]()
}

// object returns what the API server has by a UID.
func (w *world) object(uid string) *object {
	for _, o := range w.api.objects {
		if string(o.UID) == uid {
			return o
		}
	}
	w.t.Fatalf("there is no object with the UID %s", uid)
	return nil
}

// create makes an object in the API server.
func (w *world) create(args words) *object {
	gk := kindOf(args.plain[0]).GroupKind()
	namespace, name, found := strings.Cut(args.plain[1], "/")
	if !found {
		namespace, name = "", namespace
	}
	i := slices.IndexFunc(w.api.types, func(t servedType) bool { return t.Group == gk.Group && t.kind == gk.Kind })
	if i < 0 {
		w.t.Fatalf("there is no type %s", gk)
	}
	o := &object{key: key{w.api.types[i].GroupResource(), namespace, name}}
	o.Namespace, o.Name, o.UID = namespace, name, types.UID(args.value("uid", name))
	o.CreationTimestamp, o.Generation = metav1.Time{Time: beginning}, 1
	o.OwnerReferences, o.Finalizers = references(args.values["owners"]), args.values["finalizers"]
	w.api.objects[o.key] = o
	w.api.changed(o)
	w.name(o)
	return o
}

// name remembers the UIDs that an object makes known.
func (w *world) name(o *object) {
	w.uids[graph.IDOf(o.UID)] = o.UID
	for _, ref := range o.OwnerReferences {
		w.uids[graph.IDOf(ref.UID)] = ref.UID
	}
}

func (w *world) update(args words) {
	o := w.object(args.plain[0])
	if owners, ok := args.values["owners"]; ok || args.has("owners") {
		o.OwnerReferences = references(owners)
		w.name(o)
	}
	if finalizers, ok := args.values["finalizers"]; ok || args.has("finalizers") {
		o.Finalizers = finalizers
	}
	w.api.changed(o)
}

func (w *world) delete(args words) {
	var options metav1.DeleteOptions
	if len(args.plain) > 1 {
		policy := metav1.DeletionPropagation(args.plain[1])
		options.PropagationPolicy = &policy
	}
	if err := w.api.delete(w.object(args.plain[0]), encode(options)); err != nil {
		w.t.Fatal(err)
	}
}

// seen is an object as a watch delivers it, by the version that is watched.
func (w *world) seen(o *object) graph.Object {
	w.shown[o.UID] = versionOf(o)
	r, ok := w.watched(o)
	if !ok {
		w.t.Fatalf("%s is not watched", o.key.GroupResource)
	}
	return graph.ObjectOf(r.GroupVersionKind(), &o.PartialObjectMetadata)
}

func (w *world) watched(o *object) (catalog.Resource, bool) {
	all := w.types.Collected()
	i := slices.IndexFunc(all, func(r catalog.Resource) bool { return r.Version.GroupResource() == o.key.GroupResource })
	if i < 0 {
		return catalog.Resource{}, false
	}
	return all[i], true
}

// deliver notes that the watch of a type has come to an object. It shows what
// happens to objects of one type in the order in which it happened.
func (w *world) deliver(o *object) graph.Object {
	if versionOf(o) <= w.marks[o.key.GroupResource] {
		w.t.Fatalf("the watch of %s is past %s already", o.key.GroupResource, o)
	}
	w.marks[o.key.GroupResource] = versionOf(o)
	return w.seen(o)
}

func (w *world) see(o *object) {
	seen := graph.Seen{Object: w.deliver(o)}
	if seen.Object.Terminating && (seen.Object.OtherFinalizers || seen.Object.Held && seen.Object.HasState) {
		seen.Metadata = o.DeepCopy()
	}
	w.observe(seen)
}

// observe passes events on, as the watches do.
func (w *world) observe(events ...graph.Event) {
	w.Remember(events...)
	w.store.Apply(events...)
	w.Observe(events...)
}

func (w *world) seeEnd(uid types.UID) {
	o, ok := w.api.ended[uid]
	if !ok {
		w.t.Fatalf("%s has not ended", uid)
	}
	w.observe(graph.Deleted{Object: w.deliver(o), At: w.now})
}

// list lists types for their watches.
func (w *world) list(resources []catalog.Resource) {
	for _, r := range resources {
		relisted := graph.Relisted{Kind: r.GroupKind(), ResourceVersion: fmt.Sprint(w.api.rv), Listed: map[graph.ID]struct{}{}}
		var events []graph.Event
		for _, o := range w.api.of(r.Version.GroupResource()) {
			events = append(events, graph.Seen{Object: w.seen(o)})
			relisted.Listed[graph.IDOf(o.UID)] = struct{}{}
		}
		for uid, o := range w.api.ended {
			if o.key.GroupResource == r.Version.GroupResource() {
				w.shown[uid] = versionOf(o) // no watch will tell
			}
		}
		w.marks[r.Version.GroupResource()] = w.api.rv
		w.observe(append(events, relisted)...)
	}
}

// catchUp delivers all that was not delivered yet, in order.
func (w *world) catchUp() {
	var news []*object
	for _, o := range w.api.objects {
		news = append(news, o)
	}
	for _, o := range w.api.ended {
		news = append(news, o)
	}
	news = slices.DeleteFunc(news, func(o *object) bool {
		_, watched := w.watched(o)
		return !watched || w.shown[o.UID] >= versionOf(o)
	})
	slices.SortFunc(news, func(x, y *object) int { return versionOf(x) - versionOf(y) })
	for _, o := range news {
		if _, ended := w.api.ended[o.UID]; ended {
			w.seeEnd(o.UID)
			continue
		}
		w.see(o)
	}
}

// rediscover has the Collector take in what types are served now, as watch does.
func (w *world) rediscover(failed ...string) {
	before := w.types
	w.types = w.api.catalog(before, failed...)
	collected := map[schema.GroupKind]bool{}
	for _, r := range w.types.Collected() {
		collected[r.GroupKind()] = true
	}
	_, removed := w.types.Diff(before)
	for _, r := range removed {
		if !collected[r.GroupKind()] {
			w.observe(graph.TypeGone{Kind: r.GroupKind()})
		}
	}
	if !w.types.Equal(before) {
		w.PoliciesChanged()
	}
}

// work has objects looked at, in the order of their UIDs.
func (w *world) work(ids []graph.ID) {
	slices.SortFunc(ids, func(x, y graph.ID) int { return cmp.Compare(w.uids[x], w.uids[y]) })
	for _, id := range ids {
		delete(w.woken, id)
		delete(w.later, id)
		fmt.Fprintf(&w.out, "%s\n", w.uids[id])
		result, err := w.Reconcile(w.t.Context(), id)
		w.hear()
		switch {
		case err != nil:
			w.say("failed, so again later: " + err.Error())
			w.later[id] = struct{}{}
		case result.RequeueAfter != 0:
			w.say(fmt.Sprintf("again in %s", result.RequeueAfter))
			w.later[id] = struct{}{}
		}
	}
}

// hear writes down the events that were raised.
func (w *world) hear() {
	for len(w.reported.Events) != 0 {
		w.say("event: " + <-w.reported.Events)
	}
}

// settle lets watches and work run until there is nothing left to be done
// but what is tried again later.
func (w *world) settle() {
	for range 50 {
		w.catchUp()
		if len(w.woken) == 0 && !w.barrier() {
			return
		}
		w.work(slices.Collect(maps.Keys(w.woken)))
	}
	w.t.Fatal("it does not come to rest")
}

// barrier runs a round of the barrier, if somebody asked for one.
func (w *world) barrier() bool {
	select {
	case <-w.ConfirmPending():
	default:
		return false
	}
	before := w.out.String()
	w.out.Reset()
	w.Confirm(w.t.Context())
	lines := strings.SplitAfter(w.out.String(), "\n")
	slices.Sort(lines) // a round goes through places in no order
	w.out.Reset()
	w.out.WriteString(before + "barrier\n" + strings.Join(lines, ""))
	return true
}
