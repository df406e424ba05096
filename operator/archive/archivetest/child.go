package archivetest

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// childTest is the testing.TB of a child process, which has no test.
type childTest struct{ testing.TB }

func (childTest) Helper() {}

func (childTest) Context() context.Context { return context.Background() }

func (childTest) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}
