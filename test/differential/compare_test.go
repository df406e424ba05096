package differential

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const (
	// stillness is how many markers in a row have to find nothing changed.
	stillness = 2

	// persistence is for how long a difference has to last: the built-in
	// collector puts off what failed, for longer each time.
	persistence = 20 * time.Second
)

// outcome is what became of a script.
type outcome struct {
	difference string // "" if there was none
	after      int    // steps
	early      bool   // the built-in collector unblocked where nothing waits for itself (3.19)
	left       [2]state
}

// run runs a script on both sides and compares after every step; but several
// creations of which nothing can come share one comparison. patience is for how long differences have to
// last to count.
func run(t *testing.T, s script, patience time.Duration) outcome {
	t.Helper()
	theirs, ours := both(t)
	stages := [2]*stage{newStage(t, theirs), newStage(t, ours)}
	var out outcome
	for i, st := range s {
		answers := [2]string{stages[0].do(st), stages[1].do(st)}
		out.after = i + 1
		if answers[0] != answers[1] && !out.early {
			out.difference = fmt.Sprintf("the API server answered %s and %s", answers[0], answers[1])
			return out
		}
		if i+1 < len(s) && stages[1].isHarmless(st) && stages[1].isNew(s[i+1]) {
			continue
		}
		if out.settle(stages, patience); out.difference != "" {
			return out
		}
	}
	return out
}

// settle waits until both sides are at rest and equal, or different for good.
func (o *outcome) settle(stages [2]*stage, patience time.Duration) {
	began, still := time.Now(), 0
	var last [2]state
	for {
		for _, g := range stages {
			g.marker(g.t, g.place)
		}
		now := [2]state{stages[0].look(), stages[1].look()}
		if reflect.DeepEqual(now, last) {
			still++
		} else {
			still = 0
		}
		last = now
		if still < stillness {
			continue
		}
		o.left = now
		o.early = o.early || stages[0].unblockedMore(stages[1])
		o.difference = o.compare(now)
		if o.difference == "" || time.Since(began) > patience {
			return
		}
	}
}

// compare says what is different. Once the built-in collector has unblocked
// early, its side is ahead, and what counts is that nothing is gone from ours
// that it has kept.
func (o *outcome) compare(now [2]state) string {
	if o.early {
		for name, kept := range now[0] {
			if got, ok := now[1][name]; !ok || got.Terminating && !kept.Terminating {
				return fmt.Sprintf("Gleaner has deleted %s, which kube-controller-manager keeps", name)
			}
		}
		return ""
	}
	return cmp.Diff(now[0], now[1])
}

// minimise returns the simplest script found that still differs.
func minimise(t *testing.T, s script, deadline time.Time) script {
	t.Helper()
	for {
		smaller, found := s, false
		for _, candidate := range s.simpler() {
			if time.Now().After(deadline) {
				return s
			}
			if len(candidate) != 0 && run(t, candidate, time.Second).difference != "" {
				smaller, found = candidate, true
				break
			}
		}
		if !found {
			return s
		}
		s = smaller
	}
}

// String lists what is there: a plain name is an object that stays, one in
// brackets one that is being deleted.
func (s state) String() string {
	var words []string
	for _, name := range slices.Sorted(maps.Keys(s)) {
		o := s[name]
		word := name
		if o.Owners != "" {
			word += "<" + strings.ReplaceAll(o.Owners, " ", ",") + ">"
		}
		if o.Terminating {
			word = "(" + word + ")"
		}
		words = append(words, word)
	}
	if len(words) == 0 {
		return "nothing"
	}
	return strings.Join(words, " ")
}
