//go:build race

package worker

import "os"

// testProgram is the program that workers run in tests under the race detector: one that is compiled without
// it, since a worker compiles modules, which takes several times as long under it. No release has this code.
// Empty: workers run this program.
func testProgram() string { return os.Getenv("GLEANER_TEST_SANDBOX") }
