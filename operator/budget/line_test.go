package budget_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gleaner-dev/gleaner/operator/budget"
)

func second(n int) budget.Instant { return budget.Instant{Mono: time.Duration(n) * time.Second} }

func TestLine_CallsInTheOrderOfJoining(t *testing.T) {
	var l budget.Line[string]
	for _, key := range []string{"a", "b", "c", "a", "d"} {
		l.Join(key)
	}
	if diff := cmp.Diff([]string{"a", "b"}, l.Call(2, second(0))); diff != "" {
		t.Error(diff)
	}
	if again := l.Call(2, second(1)); again != nil {
		t.Errorf("%v are called for tokens that others were called for", again)
	}
	for key, want := range map[string]bool{"a": true, "b": true, "c": false, "d": false, "new": false} {
		if l.MayPass(key, 2) != want {
			t.Errorf("%s may pass: %t", key, !want)
		}
	}
	l.Leave("a") // it has passed, and one token is left
	if diff := cmp.Diff([]string{"c"}, l.Call(2, second(1))); diff != "" {
		t.Error(diff)
	}
}

func TestLine_LetsOthersPassIfTokensAreLeftAfterThoseThatWait(t *testing.T) {
	var l budget.Line[string]
	if !l.MayPass("new", 1) || l.MayPass("new", 0) {
		t.Error("an empty line lets as many pass as there are tokens")
	}
	l.Join("a")
	if l.MayPass("new", 5) {
		t.Error("another one passes before one that waits is called")
	}
	l.Call(5, second(0))
	if !l.MayPass("new", 2) || l.MayPass("new", 1) {
		t.Error("another one passes with the token of one that was called, or can't with a further one")
	}
}

func TestLine_ForgetsThoseThatDoNotComeAfterTheyAreCalled(t *testing.T) {
	var l budget.Line[string]
	for _, key := range []string{"gone", "a", "b"} {
		l.Join(key)
	}
	l.Call(1, second(0))
	if called := l.Call(1, second(4)); called != nil {
		t.Errorf("%v called", called)
	}
	if diff := cmp.Diff([]string{"a"}, l.Call(1, second(5))); diff != "" {
		t.Error(diff)
	}
	if l.Len() != 2 {
		t.Errorf("%d wait, want 2", l.Len())
	}
}

func TestLine_OneThatWasCalledAndGotNoTokenWaitsAgain(t *testing.T) {
	var l budget.Line[string]
	l.Join("a")
	l.Join("b")
	l.Call(1, second(0))
	l.Join("a")
	if diff := cmp.Diff([]string{"b", "a"}, l.Call(2, second(1))); diff != "" {
		t.Error(diff)
	}
	if l.Len() != 2 {
		t.Errorf("%d wait, want 2", l.Len())
	}
}

func TestLine_ClearReturnsAllInOrder(t *testing.T) {
	var l budget.Line[string]
	for _, key := range []string{"a", "b", "c"} {
		l.Join(key)
	}
	l.Call(2, second(0))
	l.Leave("a")
	if diff := cmp.Diff([]string{"b", "c"}, l.Clear()); diff != "" || l.Len() != 0 {
		t.Errorf("%d are left\n%s", l.Len(), diff)
	}
	if !l.MayPass("new", 1) {
		t.Error("the line is not empty")
	}
}

func TestLine_IsBounded(t *testing.T) {
	var l budget.Line[int]
	for i := range budget.MaxLine + 10 {
		l.Join(i)
	}
	if l.Len() != budget.MaxLine {
		t.Errorf("%d wait", l.Len())
	}
	if called := l.Call(budget.MaxLine+10, second(0)); len(called) != budget.MaxLine {
		t.Errorf("%d called", len(called))
	}
}
