// Package ui tests the pages of the web UI in a real browser, with what they show from memory.
package ui

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/hostabi"
	"github.com/gleaner-dev/gleaner/internal/cli/explain"
	"github.com/gleaner-dev/gleaner/internal/cli/finalizers"
	"github.com/gleaner-dev/gleaner/internal/cli/governed"
	"github.com/gleaner-dev/gleaner/internal/cli/ownership"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/internal/cli/stuck"
	"github.com/gleaner-dev/gleaner/internal/ui/guard"
	"github.com/gleaner-dev/gleaner/internal/ui/page"
	"github.com/gleaner-dev/gleaner/internal/ui/server"
	"github.com/gleaner-dev/gleaner/operator/archive"
	"github.com/gleaner-dev/gleaner/operator/completion"
	"github.com/gleaner-dev/gleaner/operator/debug"
	"github.com/gleaner-dev/gleaner/operator/record"
	"github.com/gleaner-dev/gleaner/operator/survey"
	"github.com/gleaner-dev/gleaner/policies"
	"github.com/gleaner-dev/gleaner/test/browse"
	"github.com/gleaner-dev/gleaner/test/npm"
)

// shared is the browser of all tests.
var shared struct {
	once sync.Once
	*browse.Browser
	err error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if shared.Browser != nil {
		shared.Close()
	}
	os.Exit(code)
}

// window returns the shared browser for a test.
func window(t *testing.T) *browse.Browser {
	t.Helper()
	shared.once.Do(func() { shared.Browser, shared.err = browse.Start(t.Context()) })
	browse.Require(t, shared.err)
	return shared.For(t)
}

// now is when everything in the pages was read.
var now = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// world is what pages show. It can be changed while they do.
type world struct {
	mu      sync.Mutex
	objects []*unstructured.Unstructured
	now     page.Now
	denied  error // what each read returns
	paused  []string
}

func (w *world) set(change func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	change()
}

// object adds an object, as Kind name, with its owners' names.
func (w *world) object(kind, name string, owners ...string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(map[string]string{"Deployment": "apps/v1", "ReplicaSet": "apps/v1"}[kind])
	if o.GetAPIVersion() == "" {
		o.SetAPIVersion("v1")
	}
	o.SetKind(kind)
	o.SetNamespace("shop")
	o.SetName(name)
	o.SetUID(types.UID(name))
	o.SetResourceVersion("1")
	o.SetCreationTimestamp(metav1.NewTime(now.Add(-time.Hour)))
	var refs []metav1.OwnerReference
	for _, owner := range owners {
		of, _, _ := strings.Cut(owner, "-")
		kind := map[string]string{"web": "Deployment", "rs": "ReplicaSet", "cm": "ConfigMap"}[of]
		version := "apps/v1"
		if kind == "ConfigMap" {
			version = "v1"
		}
		refs = append(refs, metav1.OwnerReference{APIVersion: version, Kind: kind, Name: owner, UID: types.UID(owner)})
	}
	o.SetOwnerReferences(refs)
	w.objects = append(w.objects, o)
	return o
}

// deployments adds Deployments with a ReplicaSet and Pods each.
func (w *world) deployments(n, pods int) {
	for i := range n {
		d, r := fmt.Sprintf("web-%d", i), fmt.Sprintf("rs-%d", i)
		w.object("Deployment", d)
		w.object("ReplicaSet", r, d)
		for j := range pods {
			w.object("Pod", fmt.Sprintf("pod-%d-%d", i, j), r)
		}
	}
}

func terminating(o *unstructured.Unstructured, finalizers ...string) {
	at := metav1.NewTime(now.Add(-10 * time.Minute))
	o.SetDeletionTimestamp(&at)
	o.SetFinalizers(finalizers)
}

func (w *world) graph(ctx context.Context, _, target string) (*ownership.Ownership, time.Time, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.denied != nil {
		return nil, time.Time{}, w.denied
	}
	s, err := survey.Files(w.objects, func() time.Time { return now })
	if err != nil {
		return nil, time.Time{}, err
	}
	d := s.Graph.Dump()
	_, name, found := strings.Cut(target, "/")
	if found {
		d = s.Graph.Dump(types.UID(name))
	}
	return ownership.Of(ctx, s, d, types.UID(name)), now, nil
}

func (w *world) preview(_ context.Context, _ string, uid types.UID, cascade string) (*page.Preview, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.denied != nil {
		return nil, w.denied
	}
	if cascade == "" {
		cascade = "background"
	}
	p := &page.Preview{Target: record.Object{Kind: "Deployment", Namespace: "shop", Name: string(uid), UID: uid}, Cascade: cascade, Outcomes: map[types.UID]page.Outcome{}}
	for i, o := range w.objects {
		p.Add(o.GetUID(), []page.Outcome{
			{Class: page.Deleted, Text: "deleted", Why: "OwnersAbsent"}, {Class: page.Waits, Text: "waits, then deleted", Why: "HeldByPolicy"},
			{Class: page.Stays, Text: "stays", Why: "KeptByPolicy: it has data"}, {Class: page.Unknown, Text: "unknown", Why: "a module reads objects"},
		}[i%4])
	}
	return p, nil
}

func (w *world) failure() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.denied
}

const hostile = `"><script>window.hacked=1</script><img src=x onerror=window.hacked=1>` + "\u202e\u200b"

func (w *world) entries(text string) []record.Entry {
	pod := record.Object{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "pod-" + text, UID: "p1"}
	owner := record.Owner{Object: record.Object{APIVersion: "apps/v1", Kind: "ReplicaSet", Namespace: "shop", Name: "rs-" + text, UID: "r1"}, Status: "Absent", Message: "404 " + text}
	return []record.Entry{
		{
			Time: now.Add(-2 * time.Minute), Object: pod, Reason: "OwnersAbsent", Action: record.Delete, Detail: "Background", Result: "Done", Owners: []record.Owner{owner}, Root: "r1",
			Chain:  []record.Link{{Owner: owner, DeletedReason: "OwnersAbsent"}},
			Policy: "GCPolicy shop/keep", Evaluations: []record.Evaluation{
				{Policy: "GCPolicy shop/keep", Mode: "Enforce", Hook: "collect", Module: "ClusterPolicyModule keep", Digest: "sha256:0123456789abcdef0123456789abcdef", Decision: "Delete", Reason: text, Fuel: 1234, Rounds: 1},
				{Policy: "GCPolicy shop/try", Mode: "Monitor", Hook: "collect", Decision: "Orphan", Reason: "it would keep it " + text},
			},
		},
		{Time: now.Add(-time.Minute), Object: owner.Object, Reason: "KeptByPolicy", Action: record.None, Message: text, Error: "conflict " + text},
	}
}

// sources returns what pages read of a world, with a text wherever there is one.
func (w *world) sources(text string) *server.Sources {
	object := record.Object{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "pod-" + text, UID: "p1"}
	blocker := finalizers.Finalizer{
		Name: "example.com/drain", Kind: finalizers.ThirdParty, Owner: "controller " + text, WaitsFor: "its controller " + text, Message: text, Error: "it failed " + text,
		Advice: "check that its controller is running; if it was uninstalled: gleaner release pods/pod-1 -n shop --finalizer example.com/drain",
	}
	return &server.Sources{
		From: "kind-" + text, Namespace: "shop", Namespaces: func(context.Context) []string { return []string{"default", "shop"} },
		Graph: w.graph, Preview: w.preview,
		Stuck: func(_ context.Context, namespace string, than time.Duration) (stuck.Report, error) {
			since := metav1.NewTime(now.Add(-time.Hour))
			return stuck.Report{
				LongerThan: metav1.Duration{Duration: than}, Namespace: namespace, At: metav1.NewTime(now), Objects: 1, Paused: []string{"everything is paused " + text},
				Unknown: []string{"widgets.example.com: forbidden " + text},
				Groups: []stuck.Group{{
					Finalizer: blocker.Name, Kind: blocker.Kind, Owner: blocker.Owner, WaitsFor: blocker.WaitsFor, Since: since, Count: 1, Advice: blocker.Advice,
					Objects: []stuck.Object{{Object: object, Resource: "pods", Since: since, Finalizers: []string{blocker.Name}, Finalizer: &blocker}},
				}},
				TooManyOwners: []stuck.ManyOwners{{Object: object, Resource: "pods", Created: since, Owners: 900, NotFound: 12}},
			}, w.failure()
		},
		Object: func(context.Context, string, string, string, types.UID) (explain.Explanation, error) {
			since := metav1.NewTime(now.Add(-time.Hour))
			entries := w.entries(text)
			return explain.Explanation{
				Object: object, State: explain.Terminating, Summary: "It is being deleted, and waits for a finalizer. " + text, Finalizers: []finalizers.Finalizer{blocker},
				Owners: entries[0].Owners, WaitsFor: []record.Blocker{{Object: object, State: "being deleted"}}, Blocking: 1, Records: entries, RecordsSince: &since,
				Events:  []explain.Event{{Time: since, Type: "Warning", Reason: "Stuck", From: "gleaner", Message: text, Count: 2}},
				Unknown: []string{"events: forbidden " + text}, Paused: []string{"everything is paused " + text},
			}, w.failure()
		},
		Records: func(_ context.Context, s replicas.Selection) (replicas.Records, error) {
			since := now.Add(-time.Hour)
			found := replicas.Records{Since: &since, Queried: []string{"a"}, Unreachable: []replicas.Unreachable{{Replica: "b", Reason: "timeout " + text}}}
			for _, e := range w.entries(text) {
				if s.Matches(e) {
					found.Entries = append(found.Entries, e)
				}
			}
			return found, w.failure()
		},
		Now: func(context.Context) (page.Now, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			return w.now, w.denied
		},
		Resources: func(context.Context) ([]*unstructured.Unstructured, bool, []string, error) {
			return resources(text), true, []string{"pauses: forbidden " + text}, w.failure()
		},
		Governed: func(_ context.Context, all []*unstructured.Unstructured) (map[types.UID]governed.Count, error) {
			return map[types.UID]governed.Count{all[0].GetUID(): {Objects: 12, AtMost: true}}, w.failure()
		},
		TestCase: func(context.Context, types.UID, time.Time) (string, []byte, error) {
			return "gleaner_test.yaml", []byte("cases: []\n"), nil
		},
		Decision: func(context.Context, types.UID, time.Time) (record.Entry, error) {
			e := w.entries(text)[0]
			e.Evaluations[0].Exchanges = []policies.Exchange{{
				Request: hostabi.Request{Hook: hostabi.HookCollect}, Verdict: hostabi.Verdict{Decision: hostabi.DecisionOrphan, Reason: text}, Fuel: 99,
			}}
			return e, w.failure()
		},
		Archive: func(context.Context, archive.Query, int) ([]archive.Header, bool, error) {
			return []archive.Header{header(text)}, true, w.failure()
		},
		Archived: func(context.Context, string) (page.Archived, error) {
			return page.Archived{Header: header(text), Diff: "--- archived\n+++ live\n-" + text, Manifest: "kind: Secret " + text}, w.failure()
		},
		Replay: func(_ context.Context, uid types.UID, at time.Time, name string, module []byte) (string, error) {
			return fmt.Sprintf("%s at %s with %s: %s", uid, at.Format(time.RFC3339), name, module), w.failure()
		},
		Actions: server.Actions{
			Pause: func(_ context.Context, namespace, reason string, lasts time.Duration) (string, error) {
				if err := w.failure(); err != nil {
					return "", err
				}
				w.set(func() { w.paused = append(w.paused, fmt.Sprintf("%s %s %s", namespace, reason, lasts)) })
				return "Paused everything.", nil
			},
			Restore: func(_ context.Context, uid types.UID, dryRun bool) (string, error) {
				w.set(func() { w.paused = append(w.paused, fmt.Sprint("restored ", uid, " ", dryRun)) })
				return "Restored 1 object. " + text, nil
			},
			Resume: func(_ context.Context, namespace, name string) (string, error) {
				w.set(func() { w.paused = append(w.paused, "resumed "+namespace+" "+name) })
				return "Deleted the pause.", nil
			},
		},
	}
}

func header(text string) archive.Header {
	return archive.Header{
		ID: "0000000000000001-a", Time: now.Add(-time.Hour), Object: archive.Reference{APIVersion: "v1", Kind: "Secret", Namespace: "shop", Name: "s-" + text, UID: "s1"},
		Policies: []string{"ArchivePolicy shop/all " + text}, Cause: archive.Cause{Reason: "OwnersAbsent"}, Recipients: 1,
	}
}

func (w *world) fill(text string) {
	w.now = page.Now{
		Installed: true, CascadesKnown: true, RatesKnown: true, PausesKnown: true, Unread: []string{"records: " + text},
		Replicas: []replicas.Health{
			{Replica: "gleaner-system/gleaner-0", Status: debug.Status{Collecting: true, Leading: true, Collector: "primary", Version: "v1.2.3", Message: text}},
			{Replica: "gleaner-system/gleaner-1", Err: errors.New("connection refused " + text)},
		},
		Cascades: []completion.Cascade{{Root: completion.Root{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web-" + text, UID: "d"}, Began: now.Add(-time.Minute), Changed: now, Deleted: 12, Kept: 1}},
		Queue:    debug.Queue{Length: 1200, Oldest: []debug.Queued{{Object: record.Object{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "pod-" + text, UID: "p"}, Since: now.Add(-3 * time.Second)}}},
		Rates:    page.NewRates(w.entries(text), nil, now.Add(-time.Minute-30*time.Second)),
		Pauses:   []page.PauseState{{Kind: "Pause", Namespace: "shop", Name: "all", Text: "everything: " + text, InForce: true}},
		Budgets:  []page.Resource{{Kind: "DeletionBudget", Namespace: "shop", Name: "few", Facts: []page.Fact{{Name: "used", Value: "3 of 10"}}}},
	}
}

// serve serves the pages of sources until the test ends.
func serve(t testing.TB, sources *server.Sources) (address string, stop func()) {
	t.Helper()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// That of httptest would wait for the event stream of a browser that connects again.
	s := &http.Server{Handler: guard.Harden(server.New(func(*http.Request) *server.Sources { return sources }, func() time.Time { return now }), "127.0.0.1"), ReadHeaderTimeout: timeout}
	go func() { _ = s.Serve(listener) }()
	stop = sync.OnceFunc(func() { _ = s.Close() })
	t.Cleanup(func() {
		if shared.Browser != nil {
			shared.For(t).Open("about:blank") // otherwise, the next test sees that the connection is lost
		}
		stop()
	})
	return "http://" + listener.Addr().String(), stop
}

// axe returns the accessibility checks of Deque.
func axe(t testing.TB) string {
	t.Helper()
	script, err := os.ReadFile(filepath.Join(npm.Install(t, ".", browse.RequiredVariable), "axe-core", "axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(script)
}

// violation is a finding of axe.
type violation struct {
	ID, Help string
	Nodes    []struct {
		HTML           string
		FailureSummary string
	}
}

func checkAccessibility(b *browse.Browser, script string) {
	b.Helper()
	var loaded bool
	b.Evaluate(script+";true", &loaded)
	var found []violation
	b.Evaluate("axe.run({resultTypes: ['violations']}).then(r => r.violations)", &found)
	for _, v := range found {
		for _, n := range v.Nodes[:min(len(v.Nodes), 3)] {
			b.Errorf("%s: %s\n%s\n%s", v.ID, v.Help, n.HTML, n.FailureSummary)
		}
	}
}
