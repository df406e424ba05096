package explain

import (
	"io"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/printer/printertest"
)

func TestHostileReport_IsEscaped(t *testing.T) {
	e := printertest.Filled[Explanation]()
	e.State = Terminating
	printertest.CheckReport(t, func(out io.Writer) error { return showExplanation(out, printer.Palette{}, e) })
}
