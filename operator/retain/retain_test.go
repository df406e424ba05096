package retain_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/utils/ptr"

	"github.com/gleaner-dev/gleaner/operator/retain"
)

var now = time.Date(2026, 5, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// unused returns a candidate that was created, first seen and last used some hours ago.
func unused(id string, hours int, change ...func(*retain.Candidate)) retain.Candidate {
	at := ago(time.Duration(hours) * time.Hour)
	c := retain.Candidate{ID: id, Group: "g", Use: retain.Unused, Created: at, FirstSeen: at, LastUsed: at, Size: 10}
	for _, f := range change {
		f(&c)
	}
	return c
}

func in(group string) func(*retain.Candidate) { return func(c *retain.Candidate) { c.Group = group } }

func used(c *retain.Candidate) { c.Use = retain.Used }

func terminating(c *retain.Candidate) { c.Terminating = true }

func finished(hours int) func(*retain.Candidate) {
	return func(c *retain.Candidate) { c.IsFinished, c.Finished = true, ago(time.Duration(hours)*time.Hour) }
}

// removals returns what is removed, as ID:reason.
func removals(in retain.Input) (all []string) {
	plan := retain.Evaluate(in)
	for _, d := range plan.Removals {
		all = append(all, in.Candidates[d.Candidate].ID+":"+string(d.Reason))
	}
	return all
}

type rule = retain.Rule

// check checks what is removed of candidates.
func check(t *testing.T, r rule, candidates []retain.Candidate, want ...string) retain.Plan {
	t.Helper()
	input := retain.Input{Candidates: candidates, Rule: r, Now: now}
	if diff := cmp.Diff(want, removals(input)); diff != "" {
		t.Errorf("removals (-want +got):\n%s", diff)
	}
	return retain.Evaluate(input)
}

func TestP01_LimitsApplyToEachGroup(t *testing.T) {
	check(t, rule{KeepLast: ptr.To(1)}, []retain.Candidate{
		unused("a1", 3, in("a")), unused("a2", 2, in("a")), unused("b1", 9, in("b")), unused("c1", 5, in("c")), unused("c2", 4, in("c")),
	}, "c1:KeepLast", "a1:KeepLast")
}

func TestP02_WhatCanNotBeRemovedStays(t *testing.T) {
	all := map[string]retain.Candidate{
		"in use":         unused("a", 5, used),
		"not known":      unused("a", 5, func(c *retain.Candidate) { c.Use = retain.UseUnknown }),
		"pinned":         unused("a", 5, func(c *retain.Candidate) { c.Pinned = true }),
		"terminating":    unused("a", 5, terminating),
		"protected":      unused("a", 5, func(c *retain.Candidate) { c.Protected = "it is the default" }),
		"younger":        unused("a", 0),
		"of unknown age": unused("a", 5, func(c *retain.Candidate) { c.Created = time.Time{} }),
	}
	reasons := map[string]retain.Reason{
		"in use": retain.IsUsed, "not known": retain.MaybeUsed, "pinned": retain.IsPinned, "terminating": retain.IsTerminating,
		"protected": retain.IsProtected, "younger": retain.TooYoung, "of unknown age": retain.AgeUnknown,
	}
	for claim, c := range all {
		t.Run(claim, func(t *testing.T) {
			c.IsFinished, c.Finished, c.GroupGone = true, ago(10*time.Hour), true
			plan := retain.Evaluate(retain.Input{
				Candidates: []retain.Candidate{c}, Now: now, GroupsRead: true, Usage: &retain.Usage{Capacity: 100},
				Rule: rule{
					MinAge: time.Hour, MinAgeFrom: retain.ByCreation, MaxAge: time.Minute, MaxUnused: time.Minute, TTL: ptr.To(time.Minute), Drain: true,
					KeepLast: ptr.To(0), MaxTotal: ptr.To(0), Watermarks: &retain.Watermarks{High: 1},
				},
			})
			if len(plan.Removals) != 0 || len(plan.Kept) != 1 || plan.Kept[0].Reason != reasons[claim] {
				t.Errorf("removed %v, kept %v", plan.Removals, plan.Kept)
			}
		})
	}
}

func TestP02_TheZeroRuleAndTheZeroCandidateKeep(t *testing.T) {
	check(t, rule{}, []retain.Candidate{unused("a", 10_000, finished(9_000))})
	check(t, rule{KeepLast: ptr.To(0), MaxAge: 1, Drain: true}, []retain.Candidate{{ID: "zero"}})
}

func TestP04_AgesCountFromTheClockOfTheRule(t *testing.T) {
	c := unused("a", 0, func(c *retain.Candidate) {
		c.Created, c.FirstSeen, c.LastUsed = ago(8*time.Hour), ago(4*time.Hour), ago(2*time.Hour)
		c.IsFinished, c.Finished = true, ago(time.Hour)
	})
	for by, age := range map[retain.Clock]time.Duration{retain.ByCreation: 8, retain.ByFirstSeen: 4, retain.ByLastUse: 2, retain.ByFinish: 1} {
		t.Run(fmt.Sprint(by), func(t *testing.T) {
			check(t, rule{MaxAge: age*time.Hour - 1, MaxAgeFrom: by}, []retain.Candidate{c}, "a:MaxAge")
			plan := check(t, rule{MaxAge: age * time.Hour, MaxAgeFrom: by}, []retain.Candidate{c})
			if want := now.Add(1); !plan.Next.Equal(want) {
				t.Errorf("next %v, want %v", plan.Next, want)
			}
		})
	}
}

func TestP05_TheLongestAgeRemovesNothing(t *testing.T) {
	check(t, rule{MaxAge: math.MaxInt64, MaxUnused: math.MaxInt64, TTL: ptr.To[time.Duration](math.MaxInt64)}, []retain.Candidate{unused("a", 9, finished(8))})
}

func TestP04_WhatWasNeverUsedIsUnusedSinceItWasFirstSeen(t *testing.T) {
	c := unused("a", 2, func(c *retain.Candidate) { c.LastUsed = time.Time{} })
	check(t, rule{MaxUnused: 3 * time.Hour}, []retain.Candidate{c})
	check(t, rule{MaxUnused: time.Hour}, []retain.Candidate{c}, "a:MaxUnused")
}

func TestP05_AgeByUsesIsNotKnownBeforeTheyWereObservedForThatLong(t *testing.T) {
	input := retain.Input{Candidates: []retain.Candidate{unused("a", 9)}, Rule: rule{MaxUnused: 3 * time.Hour}, Now: now, Since: ago(time.Hour)}
	plan := retain.Evaluate(input)
	if want := now.Add(2*time.Hour + 1); len(plan.Removals) != 0 || !plan.Next.Equal(want) {
		t.Errorf("removed %v, next %v", plan.Removals, plan.Next)
	}
	input.Now = plan.Next
	if got := removals(input); !cmp.Equal(got, []string{"a:MaxUnused"}) {
		t.Errorf("removed %v", got)
	}
}

func TestP06_P07_WatermarksFreeUntilLow(t *testing.T) {
	candidates := []retain.Candidate{unused("a", 5), unused("b", 9), unused("c", 7), unused("d", 8, used)}
	for claim, c := range map[string]struct {
		usage           *retain.Usage
		high, low       int
		want            []string
		toFree, missing int64
		problem         bool
	}{
		"below high":                 {usage: &retain.Usage{Capacity: 100, Available: 16}, high: 85, low: 80},
		"at high":                    {usage: &retain.Usage{Capacity: 100, Available: 15}, high: 85, low: 80, want: []string{"b:Usage"}, toFree: 5},
		"far above":                  {usage: &retain.Usage{Capacity: 100, Available: 5}, high: 85, low: 80, want: []string{"b:Usage", "c:Usage"}, toFree: 15},
		"more than there is":         {usage: &retain.Usage{Capacity: 100}, high: 85, low: 50, want: []string{"b:Usage", "c:Usage", "a:Usage"}, toFree: 50, missing: 20},
		"more available than can be": {usage: &retain.Usage{Capacity: 100, Available: 200}, high: 1, low: 0},
		"the usage is not known":     {high: 1, low: 0},
		"no capacity":                {usage: &retain.Usage{}, high: 85, low: 80, problem: true},
		"less than nothing":          {usage: &retain.Usage{Capacity: 100, Available: -1}, high: 85, low: 80, problem: true},
		"low above high":             {usage: &retain.Usage{Capacity: 100}, high: 80, low: 85, problem: true},
		"a large file system":        {usage: &retain.Usage{Capacity: math.MaxInt64, Available: math.MaxInt64 / 2}, high: 60, low: 40},
	} {
		t.Run(claim, func(t *testing.T) {
			input := retain.Input{Candidates: candidates, Now: now, Usage: c.usage, Rule: rule{Watermarks: &retain.Watermarks{High: c.high, Low: c.low}}}
			plan := retain.Evaluate(input)
			if diff := cmp.Diff(c.want, removals(input)); diff != "" {
				t.Errorf("removals (-want +got):\n%s", diff)
			}
			if plan.ToFree != c.toFree || plan.Shortfall != c.missing || (len(plan.Problems) != 0) != c.problem {
				t.Errorf("to free %d, shortfall %d, problems %v", plan.ToFree, plan.Shortfall, plan.Problems)
			}
		})
	}
}

func TestP07_WhatOtherLimitsFreeCounts(t *testing.T) {
	input := retain.Input{
		Candidates: []retain.Candidate{unused("old", 9), unused("a", 3), unused("b", 2)}, Now: now, Usage: &retain.Usage{Capacity: 100, Available: 6},
		Rule: rule{MaxAge: 5 * time.Hour, Watermarks: &retain.Watermarks{High: 85, Low: 80}},
	}
	if diff := cmp.Diff([]string{"old:MaxAge"}, removals(input)); diff != "" {
		t.Errorf("removals (-want +got):\n%s", diff)
	}
}

func TestP08_TheOldestGoFirst(t *testing.T) {
	low := func(c *retain.Candidate) { c.Priority = -1 }
	seen := func(hours int) func(*retain.Candidate) {
		return func(c *retain.Candidate) { c.FirstSeen = ago(time.Duration(hours) * time.Hour) }
	}
	candidates := []retain.Candidate{
		unused("c", 5), unused("b", 5, seen(7)), unused("a", 9), unused("d", 1, low),
		unused("never", 3, func(c *retain.Candidate) { c.LastUsed = time.Time{} }), unused("B", 5, seen(7)),
	}
	check(t, rule{Drain: true}, candidates, "d:Drain", "never:Drain", "a:Drain", "B:Drain", "b:Drain", "c:Drain")
	check(t, rule{Drain: true, Order: retain.ByFinish}, []retain.Candidate{unused("late", 9, finished(1)), unused("early", 1, finished(2))}, "early:Drain", "late:Drain")
}

func TestP09_LimitsByNumber(t *testing.T) {
	candidates := []retain.Candidate{
		unused("a1", 9, in("a")), unused("a2", 8, in("a")), unused("a3", 7, in("a")), unused("a4", 6, in("a")),
		unused("b1", 5, in("b")), unused("c1", 4, in("c")), unused("c2", 3, in("c")),
	}
	for claim, c := range map[string]struct {
		each, total *int
		want        []string
	}{
		"no limits":                       {},
		"negative limits":                 {ptr.To(-1), ptr.To(-1), nil},
		"the newest two of each":          {ptr.To(2), nil, []string{"a1:KeepLast", "a2:KeepLast"}},
		"none of each":                    {ptr.To(0), nil, []string{"a1:KeepLast", "a2:KeepLast", "a3:KeepLast", "a4:KeepLast", "b1:KeepLast", "c1:KeepLast", "c2:KeepLast"}},
		"six in all: two of each":         {nil, ptr.To(6), []string{"a1:MaxTotal", "a2:MaxTotal"}},
		"four in all: one of each":        {nil, ptr.To(4), []string{"a1:MaxTotal", "a2:MaxTotal", "a3:MaxTotal", "c1:MaxTotal"}},
		"two in all, though there are 3":  {nil, ptr.To(2), []string{"a1:MaxTotal", "a2:MaxTotal", "a3:MaxTotal", "c1:MaxTotal", "a4:MaxTotal"}},
		"both: what is left fits already": {ptr.To(1), ptr.To(3), []string{"a1:KeepLast", "a2:KeepLast", "a3:KeepLast", "c1:KeepLast"}},
	} {
		t.Run(claim, func(t *testing.T) { check(t, rule{KeepLast: c.each, MaxTotal: c.total}, candidates, c.want...) })
	}
}

func TestP10_ATotalRemovesOnlyTheExcess(t *testing.T) {
	var all []retain.Candidate
	for i := range 10 {
		all = append(all, unused(fmt.Sprint(i), 20-i, in(fmt.Sprint(i))))
	}
	check(t, rule{MaxTotal: ptr.To(8), Order: retain.ByCreation}, all, "0:MaxTotal", "1:MaxTotal")
}

func TestP11_WhatCanNotBeRemovedIsSkippedOrReplaced(t *testing.T) {
	candidates := []retain.Candidate{unused("a", 9), unused("b", 8, used), unused("c", 7), unused("d", 6), unused("gone", 10, terminating)}
	check(t, rule{KeepLast: ptr.To(2)}, candidates, "a:KeepLast")
	check(t, rule{KeepLast: ptr.To(2), Counting: retain.CountAllAndReplace}, candidates, "a:KeepLast", "c:KeepLast")
	check(t, rule{KeepLast: ptr.To(2), Counting: retain.CountRemovable}, candidates, "a:KeepLast")
}

func TestP12_TimeToLiveAfterTheEnd(t *testing.T) {
	ttl := func(d time.Duration) func(*retain.Candidate) { return func(c *retain.Candidate) { c.TTL = &d } }
	plan := check(t, rule{TTL: ptr.To(2 * time.Hour)}, []retain.Candidate{
		unused("due", 9, finished(2)), unused("later", 9, finished(1)), unused("runs", 9), unused("own", 9, finished(1), ttl(time.Hour)),
		unused("without time", 9, func(c *retain.Candidate) { c.IsFinished = true }), unused("future", 9, finished(-1)),
	}, "due:Expired", "own:Expired")
	if len(plan.Problems) != 2 || plan.Problems[0].Candidate != 4 || plan.Problems[1].Candidate != 5 {
		t.Errorf("problems %v", plan.Problems)
	}
	check(t, rule{TTL: ptr.To(time.Duration(-1))}, []retain.Candidate{unused("negative", 9, finished(1))})
	check(t, rule{}, []retain.Candidate{unused("own", 9, finished(1), ttl(0)), unused("none", 9, finished(1))}, "own:Expired")
}

// What is evaluated at the time that a plan names has another result, and has the same one just before.
func TestP14_NextIsWhenTheResultChanges(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // reproducible
	changes := 0
	for range 2000 {
		input := randomInput(r)
		plan := retain.Evaluate(input)
		if plan.Next.IsZero() {
			continue
		}
		if !plan.Next.After(input.Now) {
			t.Fatalf("next %v is not after %v", plan.Next, input.Now)
		}
		before := input
		before.Now = plan.Next.Add(-1)
		if got, want := removals(before), removals(input); !cmp.Equal(got, want) {
			t.Fatalf("just before %v: %v; at %v: %v\n%+v", plan.Next, got, input.Now, want, input)
		}
		input.Now = plan.Next
		if !cmp.Equal(removals(input), removals(before)) {
			changes++
		}
	}
	if changes < 500 {
		t.Errorf("the result changed %d times", changes)
	}
}

func TestP17_AGroupThatIsGone(t *testing.T) {
	gone := func(c *retain.Candidate) { c.GroupGone = true }
	input := retain.Input{Candidates: []retain.Candidate{unused("a", 2, gone), unused("b", 1, gone), unused("c", 0, gone), unused("d", 9)}, Now: now, Rule: rule{MinAge: time.Hour}}
	if got := removals(input); got != nil {
		t.Errorf("before groups were read: %v", got)
	}
	input.GroupsRead = true
	if diff := cmp.Diff([]string{"a:GroupGone", "b:GroupGone"}, removals(input)); diff != "" {
		t.Errorf("removals (-want +got):\n%s", diff)
	}
	if next := retain.Evaluate(input).Next; !next.Equal(now.Add(time.Hour)) {
		t.Errorf("next %v", next)
	}
}

func TestP23_TheSameInputHasTheSamePlan(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4)) //nolint:gosec // reproducible
	for range 500 {
		input := randomInput(r)
		plan, seen := retain.Evaluate(input), map[int]bool{}
		if again := retain.Evaluate(input); !cmp.Equal(plan, again) {
			t.Fatalf("%v, then %v", plan, again)
		}
		want := removals(input)
		for _, d := range slices.Concat(plan.Removals, plan.Kept) {
			if seen[d.Candidate] || d.Reason == "" {
				t.Fatalf("candidate %d is decided about twice, or without a reason: %+v", d.Candidate, plan)
			}
			seen[d.Candidate] = true
		}
		if len(seen) != len(input.Candidates) {
			t.Fatalf("%d of %d candidates are decided about", len(seen), len(input.Candidates))
		}
		input.Candidates = slices.Clone(input.Candidates)
		r.Shuffle(len(input.Candidates), func(i, j int) {
			input.Candidates[i], input.Candidates[j] = input.Candidates[j], input.Candidates[i]
		})
		if diff := cmp.Diff(want, removals(input)); diff != "" {
			t.Fatalf("in another order (-want +got):\n%s", diff)
		}
	}
}

// What stays until a time has come says which.
func TestP14_WhatIsDueLaterSaysWhen(t *testing.T) {
	plan := retain.Evaluate(retain.Input{
		Candidates: []retain.Candidate{unused("a", 2), unused("used", 2, used), unused("b", 1), unused("last", 1)}, Now: now, Since: ago(time.Hour),
		Rule: rule{MaxAge: 9 * time.Hour, MaxAgeFrom: retain.ByCreation, MaxUnused: 5 * time.Hour, MinAge: 4 * time.Hour, KeepLast: ptr.To(3)},
	})
	due := map[int]time.Time{}
	for _, d := range plan.Kept {
		due[d.Candidate] = d.Due
	}
	want := map[int]time.Time{0: now.Add(4*time.Hour + 1), 1: {}, 2: now.Add(4*time.Hour + 1), 3: now.Add(4*time.Hour + 1)}
	if diff := cmp.Diff(want, due); diff != "" {
		t.Errorf("due (-want +got):\n%s", diff)
	}
}

func TestP24_DrainHonorsAgeUseAndPins(t *testing.T) {
	check(t, rule{Drain: true, MinAge: time.Hour, Watermarks: &retain.Watermarks{High: 85, Low: 80}}, []retain.Candidate{
		unused("a", 2), unused("used", 9, used), unused("young", 0), unused("pinned", 9, func(c *retain.Candidate) { c.Pinned = true }),
	}, "a:Drain")
}

// randomInput returns an input in which most limits apply to something.
func randomInput(r *rand.Rand) retain.Input {
	hours := func(most int) time.Duration { return time.Duration(r.IntN(most*60)) * time.Minute }
	some := func(most int) *int {
		if r.IntN(2) == 0 {
			return nil
		}
		return ptr.To(r.IntN(most))
	}
	input := retain.Input{Now: now, GroupsRead: r.IntN(2) == 0, Rule: retain.Rule{
		MinAge: hours(4), MinAgeFrom: retain.Clock(r.IntN(4)), KeepLast: some(4), MaxTotal: some(9), Counting: retain.Counting(r.IntN(3)), Order: retain.Clock(r.IntN(4)),
	}}
	if r.IntN(2) == 0 {
		input.Rule.MaxAge, input.Rule.MaxAgeFrom = 1+hours(20), retain.Clock(r.IntN(4))
	}
	if r.IntN(3) == 0 {
		input.Rule.MaxUnused = 1 + hours(20)
	}
	if r.IntN(3) == 0 {
		input.Rule.TTL = ptr.To(hours(10))
	}
	if r.IntN(3) == 0 {
		input.Since = ago(hours(12))
	}
	if r.IntN(2) == 0 {
		low := r.IntN(90)
		input.Rule.Watermarks = &retain.Watermarks{High: low + 1 + r.IntN(100-low), Low: low}
		input.Usage = &retain.Usage{Capacity: 200, Available: r.Int64N(200)}
	}
	for n := range 1 + r.IntN(12) {
		c := unused(fmt.Sprintf("c%02d", n), r.IntN(24), in(fmt.Sprint(r.IntN(3))))
		c.FirstSeen, c.LastUsed, c.Use = ago(hours(24)), ago(hours(24)), retain.Use(r.IntN(3))
		c.Pinned, c.Terminating, c.GroupGone, c.Priority = r.IntN(8) == 0, r.IntN(8) == 0, r.IntN(8) == 0, r.IntN(2)
		if r.IntN(3) > 0 {
			c.Use = retain.Unused
		}
		if r.IntN(2) == 0 {
			c.IsFinished, c.Finished = true, ago(hours(24)-2*time.Hour)
		}
		input.Candidates = append(input.Candidates, c)
	}
	return input
}

// Three quarters of 100,000 candidates are removed.
func BenchmarkEvaluate(b *testing.B) {
	input := retain.Input{Now: now, Rule: rule{MaxAge: 500 * time.Hour, KeepLast: ptr.To(5), MaxTotal: ptr.To(50_000)}}
	for n := range 100_000 {
		input.Candidates = append(input.Candidates, unused(fmt.Sprintf("c%d", n), n%1000, in(fmt.Sprint(n%10_000))))
	}
	b.ReportAllocs()
	for b.Loop() {
		if plan := retain.Evaluate(input); len(plan.Removals) != 74_950 {
			b.Fatalf("%d removals", len(plan.Removals))
		}
	}
}
