package pause_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/operator/graph"
	"github.com/gleaner-dev/gleaner/operator/pause"
	"github.com/gleaner-dev/gleaner/operator/writer"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func TestSet_StopsWhatIsInTheScopeOfAPause(t *testing.T) {
	const policy, other = "GCPolicy shop/keep", "ClusterGCPolicy all"
	for name, c := range map[string]struct {
		pause             pause.Pause
		namespace, policy string
		stops             bool
	}{
		"everything, decided by default":          {pause.Pause{}, "shop", "", true},
		"everything, decided by a policy":         {pause.Pause{}, "shop", policy, true},
		"everything, of a cluster-scoped object":  {pause.Pause{}, "", "", true},
		"a namespace":                             {pause.Pause{Namespace: "shop"}, "shop", policy, true},
		"another namespace":                       {pause.Pause{Namespace: "other"}, "shop", policy, false},
		"a namespace, of a cluster-scoped object": {pause.Pause{Namespace: "shop"}, "", policy, false},
		"a policy":                      {pause.Pause{Policy: policy}, "shop", policy, true},
		"another policy":                {pause.Pause{Policy: other}, "shop", policy, false},
		"a policy, decided by default":  {pause.Pause{Policy: policy}, "shop", "", false},
		"a policy in a namespace":       {pause.Pause{Namespace: "shop", Policy: other}, "shop", other, true},
		"a policy in another namespace": {pause.Pause{Namespace: "other", Policy: other}, "shop", other, false},
		"not ended yet":                 {pause.Pause{Until: now.Add(1)}, "shop", "", true},
		"ended":                         {pause.Pause{Until: now}, "shop", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			c.pause.Name = "p"
			got, is := pause.NewSet([]pause.Pause{c.pause}).Stopping(c.namespace, c.policy, now)
			if is != c.stops || is && got != c.pause {
				t.Errorf("got %v, %t", got, is)
			}
		})
	}
	if _, is := (&pause.Set{}).Stopping("shop", policy, now); is {
		t.Error("no pause stops something")
	}
}

func TestSet_OfTheSameScope_TheLongestCounts(t *testing.T) {
	short, long, forever := pause.Pause{Name: "b", Until: now.Add(time.Minute)}, pause.Pause{Name: "a", Until: now.Add(time.Hour)}, pause.Pause{Name: "c"}
	for _, c := range []struct {
		all   []pause.Pause
		after time.Duration
		want  string
	}{
		{[]pause.Pause{short, long}, 0, "a"},
		{[]pause.Pause{long, short}, 30 * time.Minute, "a"},
		{[]pause.Pause{long, short}, time.Hour, ""},
		{[]pause.Pause{short, forever, long}, 0, "c"},
		{[]pause.Pause{forever, short, long}, 24 * time.Hour, "c"},
	} {
		if got, _ := pause.NewSet(c.all).Stopping("", "", now.Add(c.after)); got.Name != c.want {
			t.Errorf("%v after %s: %v stops", c.all, c.after, got)
		}
	}
}

func TestSet_NextEnd(t *testing.T) {
	s := pause.NewSet([]pause.Pause{{Name: "a"}, {Name: "b", Until: now.Add(2)}, {Name: "c", Until: now.Add(1)}, {Name: "d", Until: now.Add(-1)}})
	for _, c := range []struct{ at, want time.Time }{{now, now.Add(1)}, {now.Add(1), now.Add(2)}, {now.Add(2), time.Time{}}} {
		if got := s.NextEnd(c.at); !got.Equal(c.want) {
			t.Errorf("at %s: %s", c.at, got)
		}
	}
	if got := s.InForce(now); len(got) != 3 {
		t.Errorf("in force: %v", got)
	}
}

func TestIsNarrower(t *testing.T) {
	all, shop, limited := pause.Pause{Name: "all"}, pause.Pause{Namespace: "shop"}, pause.Pause{Name: "limited", Until: now.Add(time.Hour)}
	for name, c := range map[string]struct {
		before, after []pause.Pause
		pass          time.Duration
		want          bool
	}{
		"nothing":                      {nil, nil, 0, false},
		"added":                        {nil, []pause.Pause{all}, 0, false},
		"removed":                      {[]pause.Pause{all}, nil, 0, true},
		"another scope":                {[]pause.Pause{all}, []pause.Pause{shop}, 0, true},
		"the same":                     {[]pause.Pause{all, shop}, []pause.Pause{shop, all}, time.Hour, false},
		"has ended":                    {[]pause.Pause{limited}, []pause.Pause{limited}, time.Hour, true},
		"has not ended":                {[]pause.Pause{limited}, []pause.Pause{limited}, time.Minute, false},
		"another one of the same kind": {[]pause.Pause{limited}, []pause.Pause{all}, time.Hour, false},
		"had ended before":             {[]pause.Pause{{Name: "old", Until: now}}, nil, 0, false},
	} {
		if got := pause.IsNarrower(pause.NewSet(c.before), now, pause.NewSet(c.after), now.Add(c.pass)); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}

// What protects an object passes, as does its state, and what was archived for somebody else's
// request; an effect that is not known is stopped.
func TestStep_StopsWhatDeletesReleasesOrphansOrReachesOutside(t *testing.T) {
	set := pause.NewSet([]pause.Pause{{Name: "incident", Reason: "owners vanish", Until: now.Add(time.Hour)}})
	for effect, stops := range map[writer.Effect]bool{
		writer.Deletes: true, writer.Releases: true, writer.Orphans: true, writer.External: true, "": true, "new": true,
		writer.Protects: false, writer.State: false,
	} {
		for origin, exempt := range map[writer.Origin]bool{writer.Collector: false, writer.Finalizers: false, writer.Archive: true} {
			stopped := 0
			step := pause.Step{
				Current: func() (*pause.Set, error) { return set, nil }, Now: func() time.Time { return now },
				Stopped: func(writer.Write, pause.Pause) { stopped++ },
			}
			got, err := step.Admit(t.Context(), writer.Write{Origin: origin, Effect: effect, Target: graph.Object{Namespace: "shop"}})
			want := writer.Admission{Outcome: writer.Pass}
			if stops && !exempt {
				want = writer.Admission{Outcome: writer.Wait, Reason: "paused by ClusterPause incident (owners vanish) until 2026-01-02T04:04:05Z", Retry: time.Minute}
			}
			if diff := cmp.Diff(want, got); err != nil || diff != "" || (stopped == 1) != (stops && !exempt) {
				t.Errorf("%s of %s: stopped %d times: %v\n%s", effect, origin, stopped, err, diff)
			}
		}
	}
}

func TestStep_StopsWhilePausesAreNotKnown(t *testing.T) {
	step := pause.Step{Current: func() (*pause.Set, error) { return nil, errors.New("not read") }, Now: time.Now}
	for effect, want := range map[writer.Effect]writer.Outcome{writer.Deletes: writer.Wait, writer.Protects: writer.Pass} {
		if got, err := step.Admit(t.Context(), writer.Write{Effect: effect}); got.Outcome != want || err != nil {
			t.Errorf("%s: %v, %v", effect, got, err)
		}
	}
}

func BenchmarkStep_AThousandPauses(b *testing.B) {
	for name, n := range map[string]int{"none": 0, "1000": 1000} {
		b.Run(name, func(b *testing.B) {
			var all []pause.Pause
			for i := range n {
				all = append(all, pause.Pause{Namespace: "other", Name: "p", Policy: "GCPolicy other/" + string(rune('a'+i))})
			}
			set := pause.NewSet(all)
			step := pause.Step{Current: func() (*pause.Set, error) { return set, nil }, Now: time.Now}
			w := writer.Write{Effect: writer.Deletes, Target: graph.Object{Namespace: "shop"}}
			for b.Loop() {
				if got, _ := step.Admit(b.Context(), w); got.Outcome != writer.Pass {
					b.Fatal(got)
				}
			}
		})
	}
}
