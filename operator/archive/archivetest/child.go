package archivetest

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// childTest is the testing.TB of a child process, which has no test.
type childTest struct{ testing.TB }

// Helper does nothing.
func (childTest) Helper() {}

// Context returns a context that does not end.
func (childTest) Context() context.Context { return context.Background() }

// Fatal ends the process.
func (childTest) Fatal(args ...any) {
	fmt.Fprintln(os.Stderr, args...)
	os.Exit(1)
}
