package rbac

import (
	"io"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/cli/permissions"
	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/printer/printertest"
)

func TestHostileReport_IsEscaped(t *testing.T) {
	setup := printertest.Filled[permissions.Setup]()
	printertest.CheckReport(t, func(out io.Writer) error {
		permissions.Write(out, setup, printertest.Filled[[]permissions.Rule]())
		return showMissing(printer.NewSection(out, printer.Palette{}), setup, printertest.Filled[[]permissions.MissingPermission]())
	})
}
