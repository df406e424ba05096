package finalize_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	gleaner "github.com/gleaner-dev/gleaner/sdk/go"
	"github.com/gleaner-dev/gleaner/sdk/go/finalize"
	"github.com/gleaner-dev/gleaner/sdk/go/gleanertest"
)

var claims = gleaner.ListIntent{APIVersion: "v1", Kind: "ConfigMap", Namespace: "shop"}

// full is a world of so many ConfigMaps.
func full(count int) *gleanertest.FakeCluster {
	var world gleanertest.FakeCluster
	for i := range count {
		world.Add(object(fmt.Sprintf("object-%04d", i)))
	}
	return &world
}

// runToEnd goes through attempts until the decision is Done, and counts them.
func runToEnd(t *testing.T, steps func(*finalize.Steps), world func(gleaner.Intent) gleaner.Result) (attempts int) {
	t.Helper()
	r := request()
	for attempts < 100 {
		got := attempt(t, steps, r, world)
		attempts++
		switch got.Verdict.Decision {
		case gleaner.Done:
			return attempts
		case gleaner.Wait:
			r = got.Next
		default:
			t.Fatalf("attempt %d: %+v", attempts, got.Verdict)
		}
	}
	t.Fatal("it does not end")
	return 0
}

func TestEach_AllPages(t *testing.T) {
	for _, count := range []int{0, 1, 49, 50, 51, 1000} {
		world := full(count)
		runToEnd(t, func(s *finalize.Steps) {
			s.Each("all", claims, func(o gleaner.Object) { s.Delete("delete", o) })
		}, world.Execute)
		if left := len(world.Objects()); left != 0 {
			t.Errorf("%d are left of %d", left, count)
		}
	}
}

func TestEach_ContinuesAtUnfinishedPage(t *testing.T) {
	world, called := full(1000), map[string]int{}
	attempts := runToEnd(t, func(s *finalize.Steps) {
		s.Each("all", claims, func(o gleaner.Object) {
			s.Call("tell", gleaner.HTTPIntent{Method: "POST", URL: "https://example.com/" + o.Metadata.Name})
		})
	}, func(i gleaner.Intent) gleaner.Result {
		if i.HTTP == nil {
			return world.Execute(i)
		}
		called[i.HTTP.URL]++
		if called[i.HTTP.URL] == 1 && strings.HasSuffix(i.HTTP.URL, "object-0777") {
			return gleanertest.RespondWith(503, "")(i)
		}
		return gleanertest.RespondWith(200, "")(i)
	})
	again := 0
	for _, times := range called {
		again += times - 1
	}
	if len(called) != 1000 || again > 50 || attempts > 10 {
		t.Errorf("%d were told, %d of them again, in %d attempts", len(called), again, attempts)
	}
}

func TestEach_RestartsExpiredList(t *testing.T) {
	world, expired := full(1000), ""
	runToEnd(t, func(s *finalize.Steps) {
		s.Each("all", claims, func(o gleaner.Object) { s.Delete("delete", o) })
	}, func(i gleaner.Intent) gleaner.Result {
		if i.List != nil && expired == "" {
			expired = i.List.Continue
		}
		if i.List != nil && expired != "" && i.List.Continue == expired {
			return gleanertest.ErrorResult(gleaner.ErrorExpired, "the continue is too old")
		}
		return world.Execute(i)
	})
	if left := len(world.Objects()); left != 0 || expired == "" {
		t.Errorf("%d are left", left)
	}
}

func TestEach_RelistsFinishedList(t *testing.T) {
	world := full(120)
	steps := func(s *finalize.Steps) {
		s.Each("all", claims, func(gleaner.Object) {})
		s.Wait(0, "again")
	}
	first := attempt(t, steps, request(), world.Execute)
	second := attempt(t, steps, first.Next, world.Execute)
	for _, got := range []gleanertest.FinalizeResult{first, second} {
		if ids(got.Intents) != "all.1 all.2 all.3" || got.Intents[0].List.Continue != "" {
			t.Errorf("it lists %s, from %q", ids(got.Intents), got.Intents[0].List.Continue)
		}
	}
}

func TestEach_ScopesState(t *testing.T) {
	world, started := full(3), map[string]int{}
	round := 0
	runToEnd(t, func(s *finalize.Steps) {
		s.Each("all", claims, func(o gleaner.Object) {
			s.Once("start", func() {
				s.Call("start", gleaner.HTTPIntent{Method: "POST", URL: "https://example.com/" + o.Metadata.Name})
			})
			s.Delete("delete", o)
		})
		s.Until(s.Request().Attempt > 3, 0, "a few times")
	}, func(i gleaner.Intent) gleaner.Result {
		switch {
		case i.HTTP != nil:
			started[i.HTTP.URL]++
			return gleanertest.RespondWith(200, "")(i)
		case i.List != nil: // another comes first each time
			round++
			world.Add(object(fmt.Sprintf("new-%d", 9-round)))
		}
		return world.Execute(i)
	})
	for url, times := range started {
		if times != 1 {
			t.Errorf("%s was started %d times", url, times)
		}
	}
	if len(started) < 6 {
		t.Errorf("started were %v", started)
	}
}

func TestPagesOfLargeObjectsEndAnAttemptEarly(t *testing.T) {
	var world gleanertest.FakeCluster
	for i := range 100 {
		o := object(fmt.Sprintf("object-%04d", i))
		o.Body, _ = json.Marshal(map[string]any{
			"apiVersion": o.APIVersion, "kind": o.Kind, "metadata": o.Metadata, "data": map[string]string{"large": strings.Repeat("x", 100_000)},
		})
		world.Add(o)
	}
	in := claims
	in.Limit = 10
	attempts := runToEnd(t, func(s *finalize.Steps) {
		s.Each("all", in, func(o gleaner.Object) { s.Delete("delete", o) })
	}, world.Execute)
	if attempts != 10 {
		t.Errorf("it took %d attempts", attempts)
	}
}

func TestEach_Nested(t *testing.T) {
	world := full(5)
	for i := range 5 {
		for j := range 120 {
			o := object(fmt.Sprintf("child-%d-%03d", i, j))
			o.Kind = fmt.Sprintf("Child%d", i)
			world.Add(o)
		}
	}
	runToEnd(t, func(s *finalize.Steps) {
		s.Each("parents", claims, func(parent gleaner.Object) {
			kind := "Child" + strings.TrimPrefix(parent.Metadata.Name, "object-000")
			s.Each("children", gleaner.ListIntent{APIVersion: "v1", Kind: kind, Namespace: "shop"}, func(child gleaner.Object) {
				s.Delete("delete", child)
			})
			s.Delete("delete", parent)
		})
	}, world.Execute)
	if left := len(world.Objects()); left != 0 {
		t.Errorf("%d are left", left)
	}
}
