//go:build race

package worker

import "os"

// testProgram is the program that workers run in tests under the race detector: one that is compiled without
// it, since a worker compiles modules, which takes ten times as long under it. It is in no program
// that is released. Empty: workers run this program.
func testProgram() string { return os.Getenv("GLEANER_TEST_SANDBOX") }
