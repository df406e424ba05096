package page_test

import (
	"fmt"
	"io"
	"net/url"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gleaner-dev/gleaner/internal/cli/explain"
	"github.com/gleaner-dev/gleaner/internal/cli/ownership"
	"github.com/gleaner-dev/gleaner/internal/cli/printer/printertest"
	"github.com/gleaner-dev/gleaner/internal/cli/replicas"
	"github.com/gleaner-dev/gleaner/internal/cli/stuck"
	"github.com/gleaner-dev/gleaner/internal/ui/page"
	"github.com/gleaner-dev/gleaner/operator/record"
)

var now = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

// Whatever has a text in a report has a hostile one.
func TestRender_HostileReportsAreText(t *testing.T) {
	o := printertest.Filled[ownership.Ownership]()
	resources := printertest.Filled[page.PolicyGroup]()
	for name, v := range map[string]page.View{
		"graph":     page.NewGraph(&o, page.GraphQuery{Search: "", Unfolded: true}, nil),
		"picture":   page.NewGraph(o.Clone(), page.GraphQuery{Picture: true, Unfolded: true}, nil),
		"stuck":     page.Stuck{Report: printertest.Filled[stuck.Report]()},
		"object":    page.Object{Explanation: printertest.Filled[explain.Explanation]()},
		"decisions": page.Decisions{Records: printertest.Filled[replicas.Records]()},
		"policies":  page.NewPolicies([]page.PolicyGroup{resources}, true, []string{printertest.Hostile}),
		"now":       printertest.Filled[page.Now](),
		"message":   page.Message{Heading: printertest.Hostile, Text: printertest.Hostile, Login: true, Next: printertest.Hostile},
	} {
		t.Run(name, func(t *testing.T) {
			var b strings.Builder
			f := page.Frame{Title: printertest.Hostile, From: printertest.Hostile, Namespace: printertest.Hostile, Namespaces: []string{printertest.Hostile}, At: now, Content: nil}
			if err := page.Render(&b, f, v); err != nil {
				t.Fatal(err)
			}
			text := b.String()
			if !strings.Contains(text, "evil") || !strings.HasSuffix(strings.TrimSpace(text), "</html>") {
				t.Errorf("the page is incomplete:\n%s", text)
			}
			if n := strings.Count(text, "<script"); n != 2 {
				t.Errorf("%d scripts, of which 2 are our own", n)
			}
			for line := range strings.Lines(strings.ReplaceAll(text, "\t", "")) {
				printertest.CheckHarmless(t, name, strings.ReplaceAll(line, "FORGED   row", ""))
			}
		})
	}
}

func objects(n int) *ownership.Ownership {
	o := &ownership.Ownership{}
	for i := range n {
		object := ownership.Object{Object: record.Object{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: fmt.Sprint("p", i), UID: types.UID(fmt.Sprint("p", i))}}
		if i%10 != 0 {
			owner := types.UID(fmt.Sprint("p", i-i%10))
			object.Parent, object.Depth, object.Owners = owner, 1, []ownership.Owner{{UID: owner}}
		}
		o.Objects = append(o.Objects, object)
	}
	return o
}

func TestNewGraph_ShowsAtMostMaxRows(t *testing.T) {
	g := page.NewGraph(objects(5000), page.GraphQuery{Unfolded: true}, nil)
	if g.Objects != 5000 || g.Shown != 5000 || g.NotRendered != 5000-page.MaxRows || len(g.Roots) != page.MaxRows/10 || g.Roots[0].Below != 9 {
		t.Errorf("%d objects, %d shown, %d not rendered, %d roots with %d below", g.Objects, g.Shown, g.NotRendered, len(g.Roots), g.Roots[0].Below)
	}
	if g = page.NewGraph(objects(5000), page.GraphQuery{Unfolded: true, Picture: true}, nil); !g.TooLarge || g.Picture != "" {
		t.Error("a picture of 5,000 boxes is drawn")
	}
	if g = page.NewGraph(objects(5000), page.GraphQuery{Search: "P4999", Unfolded: true}, nil); g.Shown != 2 || len(g.Roots) != 1 || !g.Roots[0].Children[0].Match || g.Roots[0].Match {
		t.Errorf("a search shows %d objects", g.Shown)
	}
}

func TestNewGraph_SelectsByLabels(t *testing.T) {
	o := objects(20)
	o.Objects[13].Labels = map[string]string{"app": "web"}
	if g := page.NewGraph(o.Clone(), page.GraphQuery{Labels: "app=web", Unfolded: true}, nil); g.Shown != 2 || g.Roots[0].Name != "p10" || g.Roots[0].Children[0].Name != "p13" {
		t.Errorf("%d are shown", g.Shown)
	}
	if g := page.NewGraph(o.Clone(), page.GraphQuery{Labels: "app=web,,=", Unfolded: true}, nil); !strings.Contains(g.Failed, "kubectl -l") || len(g.Roots) != 0 {
		t.Errorf("labels that can't be read: %q", g.Failed)
	}
}

// An object of several similar ones is deleted: the others are not.
func TestNewGraph_APreviewShowsEachObject(t *testing.T) {
	o := objects(10)
	p := &page.Preview{Outcomes: map[types.UID]page.Outcome{}}
	p.Add("p1", page.Outcome{Class: page.Deleted, Text: "deleted"})
	g := page.NewGraph(o, page.GraphQuery{}, p)
	if g.Folded != 0 || len(g.Roots[0].Children) != 9 || g.Roots[0].Children[0].Outcome == nil || g.Roots[0].Children[1].Outcome != nil {
		t.Errorf("%d are folded", g.Folded)
	}
}

func TestGraphQuery_IsTheAddress(t *testing.T) {
	q := page.GraphQuery{Namespace: "shop", Target: "Pod/a b", Kind: "Pod", State: "blocked", Labels: "app in (a,b)", Search: "a&b", Depth: 3, Picture: true, Unfolded: true, Delete: "u/1", Cascade: "orphan"}
	u, err := url.Parse(q.URL())
	if err != nil {
		t.Fatal(err)
	}
	if got := page.ParseGraphQuery(u.Query()); got != q {
		t.Errorf("got %+v, want %+v", got, q)
	}
	if got := page.ParseGraphQuery(url.Values{"depth": {"-3"}}); got != (page.GraphQuery{}) {
		t.Errorf("nonsense selects %+v", got)
	}
}

func TestHealth_TheWorstConditionCounts(t *testing.T) {
	condition := func(kind string, status metav1.ConditionStatus, reason string) metav1.Condition {
		return metav1.Condition{Type: kind, Status: status, Reason: reason}
	}
	accepted := condition("Accepted", "True", "")
	for name, c := range map[string]struct {
		conditions []metav1.Condition
		want       page.Health
	}{
		"no conditions":            {nil, page.Plain},
		"all is well":              {[]metav1.Condition{accepted, condition("Overlapping", "False", "First")}, page.Working},
		"in mode Monitor":          {[]metav1.Condition{accepted, condition("Enforcing", "False", "Monitor")}, page.Working},
		"it waits":                 {[]metav1.Condition{accepted, condition("Enforcing", "False", "Waiting")}, page.Waiting},
		"another takes precedence": {[]metav1.Condition{accepted, condition("Overlapping", "True", "Behind")}, page.Waiting},
		"a budget is used up":      {[]metav1.Condition{condition("Exhausted", "True", "")}, page.Waiting},
		"not known yet":            {[]metav1.Condition{condition("Enforcing", "False", "Waiting"), condition("ModuleReady", "Unknown", "")}, page.Unsure},
		"its module is broken":     {[]metav1.Condition{condition("ModuleReady", "False", ""), condition("Attached", "Unknown", "")}, page.Failing},
		"a status from the future": {[]metav1.Condition{condition("Accepted", "Maybe", "")}, page.Unsure},
	} {
		if got := (page.Resource{Conditions: c.conditions}).Health(); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// The zero value says nothing about the cluster.
func TestNow_WhatWasNotReadIsUnknown(t *testing.T) {
	for _, known := range []bool{false, true} {
		var b strings.Builder
		n := page.Now{Installed: true, CascadesKnown: known, RatesKnown: known, PausesKnown: known}
		if err := page.Fragment(&b, page.Frame{At: now}, n); err != nil {
			t.Fatal(err)
		}
		for _, claim := range []string{">None<", "0 deletions", "Nothing is being deleted"} {
			if strings.Contains(b.String(), claim) != known {
				t.Errorf("known: %t: says %q: %t", known, claim, !known)
			}
		}
	}
}

func TestRates_CountDeletionsOfTheLastMinute(t *testing.T) {
	entry := func(ago time.Duration, action record.Action, namespace, failed string) record.Entry {
		return record.Entry{Time: now.Add(-ago), Action: action, Object: record.Object{Kind: "Pod", Namespace: namespace, Name: "p"}, Error: failed, Policy: "GCPolicy a/b"}
	}
	began := now.Add(-30 * time.Second)
	r := page.NewRates([]record.Entry{
		entry(2*time.Minute, record.Delete, "a", ""), entry(time.Second, record.Delete, "a", ""), entry(time.Second, record.Delete, "b", ""), entry(time.Second, record.Delete, "b", ""),
		entry(time.Second, record.Delete, "b", "conflict"), entry(time.Second, record.None, "b", ""),
	}, &began, now)
	if r.Deletions != 3 || fmt.Sprint(r.ByNamespace) != "[{b 2 66 0.067} {a 1 33 0.033}]" || fmt.Sprint(r.ByPolicy) != "[{GCPolicy a/b 3 100 0.1}]" || r.PerSecond != "0.1" || r.Since == nil {
		t.Errorf("%+v", r)
	}
}

// BenchmarkRender measures what the server does for a page with objects that were read before.
func BenchmarkRender(b *testing.B) {
	for _, n := range []int{100, 5000, 50_000} {
		o := objects(n)
		for name, q := range map[string]page.GraphQuery{"folded": {}, "one by one": {Unfolded: true}} {
			b.Run(fmt.Sprintf("%d objects, %s", n, name), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					if err := page.Render(io.Discard, page.Frame{Path: "/graph"}, page.NewGraph(o.Clone(), q, nil)); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
