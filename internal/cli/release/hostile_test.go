package release

import (
	"io"
	"strings"
	"testing"

	"github.com/gleaner-dev/gleaner/internal/cli/printer"
	"github.com/gleaner-dev/gleaner/internal/cli/printer/printertest"
	"github.com/gleaner-dev/gleaner/operator/release"
)

func TestHostileReport_IsEscaped(t *testing.T) {
	held := printertest.Filled[[]release.HeldObject]()
	printertest.CheckReport(t, func(out io.Writer) error {
		printHeld(out, held)
		printertest.Filled[target]().warn(out, held)
		target{finalizer: printertest.Hostile, owner: printertest.Hostile}.warn(out, held)
		_, err := printer.Prompt{In: strings.NewReader("n"), Out: out}.Confirm(printertest.Hostile, "Nothing was released.")
		return err
	})
}
