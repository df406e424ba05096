package validation_test

import (
	"os"
	"testing"

	"github.com/gleaner-dev/gleaner/policies/worker/serve"
)

func TestMain(m *testing.M) {
	serve.MainIfRequested() // modules run in worker processes
	os.Exit(m.Run())
}
