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
	"k8s.io/apimachinery/pkg/types"
)

const (
	// idleMarkers is the number of consecutive markers without a change that count as idle.
	idleMarkers = 2

	// differenceTimeout is how long a difference must last to count: the built-in
	// collector retries failures with increasing backoff.
	differenceTimeout = 20 * time.Second
)

// outcome is the result of a script.
type outcome struct {
	difference string // "" if there was none
	after      int    // number of steps
	early      bool   // the built-in collector unblocked an owner that is in no cycle (3.19)
	left       [2]state

	// keptReference is set if the difference may come from a race of the built-in
	// collector, see keepsReferences.
	keptReference bool
}

// run runs a script on both sides and compares after every step, except that consecutive
// harmless creations share one comparison. patience is how long differences must
// last to count.
func run(t *testing.T, s script, timeout time.Duration) outcome {
	t.Helper()
	theirs, own := bothSides(t)
	stages := [2]*execution{newExecution(t, theirs), newExecution(t, own)}
	var out outcome
	roots := map[types.UID]string{}
	if own.cascades != nil {
		defer func() { own.cascades.expect(roots) }()
	}
	for i, st := range s {
		if uid := stages[1].uids[st.object]; st.op == "delete" && own.cascades != nil && own.cascades.beginsCascade(uid) {
			roots[uid] = st.object + " of " + stages[1].prefix
		}
		answers := [2]string{stages[0].execute(st), stages[1].execute(st)}
		out.after = i + 1
		if answers[0] != answers[1] && !out.early {
			out.difference = fmt.Sprintf("API servers returned %s and %s", answers[0], answers[1])
			return out
		}
		if i+1 < len(s) && stages[1].isHarmless(st) && stages[1].isNew(s[i+1]) {
			continue
		}
		if out.settle(stages, timeout); out.difference != "" {
			return out
		}
	}
	return out
}

// settle waits until both sides are idle and equal, or differ permanently.
func (o *outcome) settle(stages [2]*execution, timeout time.Duration) {
	began, still := time.Now(), 0
	var last [2]state
	for {
		for _, g := range stages {
			g.collectMarker(g.t, g.scriptNamespaces)
		}
		now := [2]state{stages[0].currentState(), stages[1].currentState()}
		if reflect.DeepEqual(now, last) {
			still++
		} else {
			still = 0
		}
		last = now
		if still < idleMarkers {
			continue
		}
		o.left = now
		o.early = o.early || stages[0].unblockedEarly(stages[1])
		o.difference = o.compare(now)
		o.keptReference = o.difference != "" && keepsReferences(now[0], now[1], stages[0].foregroundOwners())
		if o.difference == "" || time.Since(began) > timeout {
			return
		}
	}
}

// compare returns the difference between the sides. Once the built-in collector has unblocked
// early, its side has deleted more, and only objects that it kept are
// compared.
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

// minimize returns the simplest script found that still differs.
func minimize(t *testing.T, s script, deadline time.Time) script {
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

// String lists the existing objects; names of terminating ones are in
// brackets.
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
