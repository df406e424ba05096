package monitor

import (
	"io"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/printer/printertest"
)

func TestHostileReport_IsEscaped(t *testing.T) {
	printertest.CheckReport(t, func(out io.Writer) error {
		return showMonitored(printer.NewSection(out, printer.Palette{}), printertest.Filled[Report]())
	})
}
