package stuck

import (
	"errors"
	"io"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/printer/printertest"
)

func TestHostileReport_IsEscaped(t *testing.T) {
	r := printertest.Filled[Report]()
	r.Objects = 2
	printertest.CheckReport(t, func(out io.Writer) error {
		s := printer.NewSection(out, printer.Palette{})
		return errors.Join(showStuck(s, r, false), showStuck(s, r, true))
	})
}
