package rego

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// slowToCompile returns a policy that takes OPA a second or two to type-check.
func slowToCompile() []File {
	var b strings.Builder
	b.WriteString("package gleaner\n\na0 := 1 if input.a\na0 := \"\" if input.b\n")
	const levels = 10
	for i := range levels {
		fmt.Fprintf(&b, "a%d := {\"a\": a%d, \"b\": a%d} if input.a\na%d := {\"c\": a%d} if input.b\na%d := [a%d] if input.c\n", i+1, i, i, i+1, i, i+1, i)
	}
	fmt.Fprintf(&b, "collect := 1 if a%d == a%d\n", levels, levels-1)
	return []File{{"slow.rego", b.String()}}
}

// OPA's compiler can't be interrupted: what is tested is that its caller need not wait.
func TestCompile_EndsAfterItsTimeout(t *testing.T) {
	notUnderRace(t)
	e, err := New(Config{CompileTimeout: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	var rejected *Error
	if _, err := e.Compile(t.Context(), slowToCompile()); !errors.As(err, &rejected) || !strings.HasPrefix(rejected.Message, "slow.rego: it takes longer to compile than 1ms: ") {
		t.Errorf("error: %v", err)
	}
}

func TestCompile_EndsWithItsContext(t *testing.T) {
	notUnderRace(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	if _, err := newEngine(t).Compile(ctx, slowToCompile()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error: %v", err)
	}
}
