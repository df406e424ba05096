package protect

import (
	"os"
	"testing"

	"github.com/gleaner-dev/gleaner/policies/worker/serve"
)

func TestMain(m *testing.M) {
	serve.MainIfRequested()
	os.Exit(m.Run())
}
