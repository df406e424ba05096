package loader

import (
	"io"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/cli/printer/printertest"
	"github.com/gleaner-dev/gleaner/policies/wasm"
)

func TestHostileLog_IsEscaped(t *testing.T) {
	printertest.CheckReport(t, func(out io.Writer) error {
		(&Module{}).PrintLog(out, printertest.Filled[wasm.Log]())
		return nil
	})
}
